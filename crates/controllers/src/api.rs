//! The few requests that controllers make, on JSON trees: objects are written back with every field that they had.
//!
//! Deliberately not here: watches (`changes.rs`). Answers are read here and not by `kube`, which would log the text of
//! an answer that does not parse, Secrets included.

use std::str::FromStr;
use std::time::Duration;

use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Client, core};
use meta::{Value, grounds, object};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;

use crate::error::Error;
use crate::justify::Justified;

/// A page of a list is at most this long. Objects can be large, and not every server can leave out all but metadata.
pub(crate) const PAGE: u32 = 50;

/// Only metadata where the server can leave out the rest.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// All of one resource, in one namespace or cluster-wide.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    path: String,
}

impl Collection {
    pub(crate) fn cluster(group: &str, version: &str, resource: &str) -> Self {
        let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        Self { path: format!("{root}/{version}/{resource}") }
    }

    pub(crate) fn namespaced(group: &str, version: &str, namespace: &str, resource: &str) -> Self {
        Self::cluster(group, version, &format!("namespaces/{namespace}/{resource}"))
    }

    fn request(&self) -> core::Request {
        core::Request::new(self.path.clone())
    }

    /// The object, or `None` if the server says 404.
    pub(crate) async fn get(&self, client: &Client, name: &str) -> Result<Option<Value>, Error> {
        let request = self.request().get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
        match client.request_text(request).await.map_err(Error::from) {
            Ok(text) => read(&text).map(Some),
            Err(error) if error.is(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The metadata of an object, or `None` if the server proves that it is not there.
    pub(crate) async fn get_metadata<T: DeserializeOwned>(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<Option<T>, Error> {
        let mut request =
            self.request().get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
        let accept = METADATA.parse().expect("the media type must be a header value");
        request.headers_mut().insert("accept", accept);
        match client.request_text(request).await.map_err(Error::from) {
            Ok(text) => read(&text).map(Some),
            Err(error) if error.proves_absent(name) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One page of metadata: the items, and how to go on.
    pub(crate) async fn list_metadata<T: DeserializeOwned>(
        &self,
        client: &Client,
        token: Option<&str>,
    ) -> Result<Page<T>, Error> {
        let mut request = self.request().list(&page(token)).map_err(kube::Error::BuildRequest)?;
        let accept = METADATA_LIST.parse().expect("the media type must be a header value");
        request.headers_mut().insert("accept", accept);
        read(&client.request_text(request).await?)
    }

    /// The metadata of an object, or `None` if it is not there: by a list, so that the right to list is enough.
    pub(crate) async fn find_metadata<T: DeserializeOwned>(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<Option<T>, Error> {
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let page: Page<T> = read(&self.ask(client, Ask::List(params), METADATA_LIST).await?)?;
        Ok(page.open().0.into_iter().next())
    }

    /// One page of the metadata of what the label selector selects, this long; an empty selector selects all.
    pub(crate) async fn page_of_metadata<T: DeserializeOwned>(
        &self,
        client: &Client,
        labels: &str,
        limit: u32,
        token: Option<&str>,
    ) -> Result<Page<T>, Error> {
        let mut params = page(token).limit(limit);
        if !labels.is_empty() {
            params = params.labels(labels);
        }
        read(&self.ask(client, Ask::List(params), METADATA_LIST).await?)
    }

    /// Whether a whole object, if there is any, can be read.
    pub(crate) async fn probe(&self, client: &Client) -> Result<(), Error> {
        let params = ListParams::default().limit(1);
        let text = self.ask(client, Ask::List(params), "application/json").await?;
        read::<Page<IgnoredAny>>(&text).map(drop)
    }

    /// One page of what both selectors select; an empty one selects all.
    pub(crate) async fn list_where<T: DeserializeOwned>(
        &self,
        client: &Client,
        fields: &str,
        labels: &str,
        token: Option<&str>,
    ) -> Result<Page<T>, Error> {
        let params = page(token).fields(fields).labels(labels);
        let request = self.request().list(&params).map_err(kube::Error::BuildRequest)?;
        read(&client.request_text(request).await?)
    }

    /// One page of whole objects.
    pub(crate) async fn list(&self, client: &Client, token: Option<&str>) -> Result<Page<Value>, Error> {
        let request = self.request().list(&page(token)).map_err(kube::Error::BuildRequest)?;
        read(&client.request_text(request).await?)
    }

    pub(crate) async fn create(&self, client: &Client, object: &Value) -> Result<(), Error> {
        let body = object.to_string().into_bytes();
        let request =
            self.request().create(&PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
        client.request_text(request).await?;
        Ok(())
    }

    /// Writes the object, on the condition of its `resourceVersion`; what comes back has the new one.
    pub(crate) async fn replace(&self, client: &Client, name: &str, object: &Value) -> Result<Value, Error> {
        let body = object.to_string().into_bytes();
        let request =
            self.request().replace(name, &PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
        read(&client.request_text(request).await?)
    }

    /// The same, while what justifies it holds.
    pub(crate) async fn replace_because(
        &self,
        client: &Client,
        name: &str,
        object: &Value,
        why: &Justified,
    ) -> Result<(), Error> {
        let body = object.to_string().into_bytes();
        let mut request =
            self.request().replace(name, &PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
        if let Some(facts) = stated(why)? {
            request.headers_mut().insert(grounds::HEADER, facts);
        }
        client.request_text(request).await?;
        Ok(())
    }

    /// Asks whether the object could be written, and writes nothing.
    pub(crate) async fn dry_run(&self, client: &Client, name: &str, object: &Value) -> Result<(), Error> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let body = object.to_string().into_bytes();
        let request = self.request().replace(name, &params, body).map_err(kube::Error::BuildRequest)?;
        client.request_text(request).await?;
        Ok(())
    }

    /// The same for `status` and the like.
    pub(crate) async fn replace_subresource(
        &self,
        client: &Client,
        name: &str,
        subresource: &str,
        object: &Value,
    ) -> Result<Value, Error> {
        let body = object.to_string().into_bytes();
        let request = self
            .request()
            .replace_subresource(subresource, name, &PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)?;
        read(&client.request_text(request).await?)
    }

    /// A merge patch, while what justifies it holds; what comes back is not read.
    pub(crate) async fn patch(
        &self,
        client: &Client,
        name: &str,
        patch: &Value,
        why: &Justified,
    ) -> Result<(), Error> {
        let patch = Patch::Merge(patch);
        let mut request =
            self.request().patch(name, &PatchParams::default(), &patch).map_err(kube::Error::BuildRequest)?;
        let accept = METADATA.parse().expect("the media type must be a header value");
        request.headers_mut().insert("accept", accept);
        if let Some(facts) = stated(why)? {
            request.headers_mut().insert(grounds::HEADER, facts);
        }
        client.request_text(request).await?;
        Ok(())
    }

    /// Writes `finalize` of a namespace, which removes it with its last finalizer, while what justifies that holds.
    pub(crate) async fn finalize(
        &self,
        client: &Client,
        name: &str,
        object: &Value,
        why: &Justified,
    ) -> Result<(), Error> {
        let body = object.to_string().into_bytes();
        let mut request = self
            .request()
            .replace_subresource("finalize", name, &PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)?;
        if let Some(facts) = stated(why)? {
            request.headers_mut().insert(grounds::HEADER, facts);
        }
        client.request_text(request).await?;
        Ok(())
    }

    /// A merge patch of the object or of its subresource; the metadata that comes back.
    pub(crate) async fn patch_metadata<T: DeserializeOwned>(
        &self,
        client: &Client,
        name: &str,
        subresource: Option<&str>,
        patch: &Value,
    ) -> Result<T, Error> {
        read(&self.ask(client, Ask::Patch { name, subresource, patch }, METADATA).await?)
    }

    /// Unlike `Client::request_text` this keeps `Retry-After`: a server that has too much to do says it only there.
    async fn ask(&self, client: &Client, what: Ask<'_>, accept: &'static str) -> Result<String, Error> {
        let params = PatchParams::default();
        let request = match what {
            Ask::List(params) => self.request().list(&params),
            Ask::Patch { name, subresource: None, patch } => {
                self.request().patch(name, &params, &Patch::Merge(patch))
            }
            Ask::Patch { name, subresource: Some(subresource), patch } => {
                self.request().patch_subresource(subresource, name, &params, &Patch::Merge(patch))
            }
        };
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        let accept = accept.parse().expect("the media type must be a header value");
        request.headers_mut().insert("accept", accept);
        let response = client.send(request.map(Body::from)).await?;
        let code = response.status().as_u16();
        let header = response.headers().get("retry-after").and_then(|it| it.to_str().ok());
        let seconds: Option<u64> = header.and_then(|it| it.parse().ok());
        let body = response.into_body().collect_bytes().await?;
        if code < 400 {
            return String::from_utf8(body.into()).map_err(|it| kube::Error::FromUtf8(it).into());
        }
        Err(refusal(code, seconds, &body))
    }

    /// Deletes the object if it is this one in this state, while what justifies that holds.
    pub(crate) async fn delete(
        &self,
        client: &Client,
        name: &str,
        exactly: Exactly<'_>,
        why: &Justified,
    ) -> Result<(), Error> {
        let Exactly { uid, resource_version, policy } = exactly;
        let mut request =
            self.request().delete(name, &DeleteParams::default()).map_err(kube::Error::BuildRequest)?;
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy,
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
        });
        *request.body_mut() = options.to_string().into_bytes();
        if let Some(facts) = stated(why)? {
            request.headers_mut().insert(grounds::HEADER, facts);
        }
        client.request_text(request).await?;
        Ok(())
    }

    /// Deletes everything in the collection, as long as what justifies that holds.
    pub(crate) async fn delete_all(&self, client: &Client, why: &Justified) -> Result<(), Error> {
        let mut request = self
            .request()
            .delete_collection(&DeleteParams::background(), &ListParams::default())
            .map_err(kube::Error::BuildRequest)?;
        if let Some(facts) = stated(why)? {
            request.headers_mut().insert(grounds::HEADER, facts);
        }
        client.request_text(request).await?;
        Ok(())
    }
}

/// One state of one object, and what happens to its dependents when it is deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exactly<'a> {
    pub(crate) uid: &'a str,
    pub(crate) resource_version: &'a str,
    pub(crate) policy: &'a str,
}

impl<'a> Exactly<'a> {
    /// The object as it was read; its dependents are collected afterwards.
    pub(crate) fn of(object: &'a Value) -> Self {
        let (uid, resource_version) = (object::uid(object), object::resource_version(object));
        Self { uid, resource_version, policy: "Background" }
    }
}

/// A part of a list.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: serde::Deserialize<'de>")]
pub(crate) struct Page<T> {
    #[serde(default)]
    metadata: PageMetadata,
    /// `null` means none, as servers written in Go may send it. An answer without this field is not a list at all, and
    /// must not be taken for an empty one.
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<T>>,
}

impl<T> Page<T> {
    /// The items, and what to ask the next page with.
    pub(crate) fn open(self) -> (Vec<T>, Option<String>) {
        (self.items.unwrap_or_default(), self.metadata.next.filter(|it| !it.is_empty()))
    }

    /// About how many items come behind this page, if the server has counted them.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.metadata.remaining_item_count
    }
}

/// A `GET` of a path that is no collection, such as `/apis`, with this `Accept`.
pub(crate) async fn get_path<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    accept: &str,
) -> Result<T, Error> {
    let mut request =
        core::Request::new(path).list(&ListParams::default()).map_err(kube::Error::BuildRequest)?;
    let accept = accept.parse().map_err(|_| Error::Unknown(format!("{accept:?} is no media type")))?;
    request.headers_mut().insert("accept", accept);
    read(&client.request_text(request).await?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: Option<String>,
    #[serde(default)]
    remaining_item_count: Option<u64>,
}

/// What [`Collection::ask`] asks.
enum Ask<'a> {
    List(ListParams),
    Patch { name: &'a str, subresource: Option<&'a str>, patch: &'a Value },
}

/// The facts that justify a request, as the value of the header that states them.
fn stated<T: FromStr>(why: &Justified) -> Result<Option<T>, Error> {
    why.header().map(|facts| facts.parse().map_err(|_| unstated(&facts))).transpose()
}

/// A request must not go out without its grounds.
fn unstated(facts: &str) -> Error {
    Error::Unknown(format!("{facts:?} cannot stand in a header"))
}

/// Not every server, and no proxy, refuses with a `Status`.
fn refusal(code: u16, seconds: Option<u64>, body: &[u8]) -> Error {
    let status = serde_json::from_slice(body).ok().filter(|it: &core::Status| it.code >= 400);
    let status = status
        .unwrap_or_else(|| core::Status::failure(String::from_utf8_lossy(body).trim(), "").with_code(code));
    let mut error = Error::from(kube::Error::Api(status.boxed()));
    if let (Error::Refused { retry_after, .. }, Some(seconds)) = (&mut error, seconds) {
        *retry_after = Some(Duration::from_secs(seconds));
    }
    error
}

fn page(token: Option<&str>) -> ListParams {
    let params = ListParams::default().limit(PAGE);
    token.map_or(params.clone(), |it| params.continue_token(it))
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(Error::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_group_version_and_namespace() {
        assert_eq!(Collection::cluster("", "v1", "namespaces").path, "/api/v1/namespaces");
        assert_eq!(
            Collection::namespaced("apps", "v1", "a", "deployments").path,
            "/apis/apps/v1/namespaces/a/deployments"
        );
    }

    #[test]
    fn refusals_say_when_to_come_back_and_how_a_list_goes_on() {
        let told = |error: Error| match error {
            Error::Refused { code, message, retry_after, next, .. } => {
                (code, message, retry_after.map(|it| it.as_secs()), next)
            }
            other => panic!("{other}"),
        };
        let plain = told(refusal(429, Some(3), b"Too many requests\n"));
        assert_eq!(plain, (429, "Too many requests".to_owned(), Some(3), None));
        let body =
            br#"{"kind": "Status", "code": 504, "message": "late", "details": {"retryAfterSeconds": 2}}"#;
        assert_eq!(told(refusal(504, None, body)), (504, "late".to_owned(), Some(2), None));
        let body = br#"{"kind": "Status", "code": 410, "message": "old", "metadata": {"continue": "c"}}"#;
        assert_eq!(told(refusal(410, None, body)), (410, "old".to_owned(), None, Some("c".to_owned())));
    }

    #[test]
    fn only_a_list_is_read_as_a_list() {
        let read = |text: &str| read::<Page<Value>>(text).map(Page::open).ok();
        assert_eq!(read(r#"{"metadata": {"continue": ""}, "items": []}"#), Some((vec![], None)));
        assert_eq!(read(r#"{"items": null}"#), Some((vec![], None)));
        let more = read(r#"{"metadata": {"continue": "c"}, "items": [1]}"#);
        assert_eq!(more, Some((vec![Value::from(1)], Some("c".to_owned()))));
        assert_eq!(read(r#"{"kind": "Status"}"#), None);
    }
}
