//! The documents of OpenAPI as bytes, kept until something changes that they show.
//!
//! Making one takes tens of milliseconds and anybody may ask for it, so it is made once per change, one at a time, and
//! beside the threads that serve requests. Whoever asks meanwhile waits for the same one.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use catalog::{
    Catalog, Schemas,
    openapi::{OpenApi, gnostic},
};
use http::HeaderValue;
use meta::Status;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::{answer, documents::ServedDocuments};

/// Which document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    /// `/openapi/v3`
    Index,
    /// `/openapi/v2` as JSON.
    V2,
    /// `/openapi/v2` as protobuf.
    V2Protobuf,
    /// `/openapi/v3/…`: built in, such as `apis/apps/v1`.
    Builtin(String),
    /// `/openapi/v3/…`: defined by users.
    Custom(String),
}

/// A document, ready to be sent.
pub(crate) struct Ready {
    pub(crate) plain: Bytes,
    /// Packed with gzip, where that pays.
    pub(crate) packed: Option<Bytes>,
    /// Without quotes.
    pub(crate) hash: String,
    pub(crate) etag: HeaderValue,
}

/// All documents of one server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Documents(Arc<Inner>);

struct Inner {
    builtin: OpenApi,
    served: Arc<ServedDocuments>,
    made: Mutex<HashMap<Wanted, Made>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

struct Made {
    versions: Versions,
    ready: Arc<Ready>,
}

/// Of what users define, and of the members; 0 where the document does not show them. They only grow.
type Versions = (u64, u64);

impl Documents {
    pub(crate) fn new(catalog: &Arc<Catalog>, schemas: &Schemas, served: &Arc<ServedDocuments>) -> Self {
        Self(Arc::new(Inner {
            builtin: OpenApi::new(Arc::clone(catalog), schemas.clone()),
            served: Arc::clone(served),
            made: Mutex::default(),
            turn: Arc::default(),
        }))
    }

    /// The document as it is now, if there is one.
    pub(crate) async fn get(&self, wanted: &Wanted) -> Result<Option<Arc<Ready>>, Status> {
        // Whatever is made after the request came is new enough for it, however fast definitions change.
        let since = self.0.versions(wanted);
        if let Some(ready) = self.0.there(wanted, since) {
            return Ok(Some(ready));
        }
        let turn = Arc::clone(&self.0.turn).lock_owned().await;
        if let Some(ready) = self.0.there(wanted, since) {
            return Ok(Some(ready));
        }
        let (inner, wanted) = (Arc::clone(&self.0), wanted.clone());
        let work = tokio::task::spawn_blocking(move || {
            let made = inner.make(wanted);
            // Held by the work itself: a client that hangs up does not start another beside it.
            drop(turn);
            made
        });
        work.await.map_err(|_| Status::internal("a document could not be made"))?
    }
}

impl Inner {
    fn versions(&self, wanted: &Wanted) -> Versions {
        let (definitions, members) = self.served.versions();
        match wanted {
            Wanted::Builtin(_) => (0, 0),
            Wanted::Index => (definitions, members),
            Wanted::V2 | Wanted::V2Protobuf | Wanted::Custom(_) => (definitions, 0),
        }
    }

    fn there(&self, wanted: &Wanted, since: Versions) -> Option<Arc<Ready>> {
        let made = self.made.lock();
        let made = made.get(wanted).filter(|it| it.versions.0 >= since.0 && it.versions.1 >= since.1);
        made.map(|it| Arc::clone(&it.ready))
    }

    fn make(&self, wanted: Wanted) -> Result<Option<Arc<Ready>>, Status> {
        // Read first: what was made from older facts is never taken for newer.
        let versions = self.versions(&wanted);
        let found = match &wanted {
            Wanted::Index => {
                let index = self.served.openapi_index_of_all(&self.builtin);
                let hash = hash(&index);
                Some((index, hash))
            }
            Wanted::V2 => Some(self.v2(|it| it.to_string().into_bytes())),
            Wanted::V2Protobuf => Some(self.v2(gnostic::encode)),
            Wanted::Builtin(path) => self.builtin.document(path),
            Wanted::Custom(path) => self.served.openapi_document(path),
        };
        let Some((plain, hash)) = found else { return Ok(None) };
        let etag = HeaderValue::from_str(&format!("\"{hash}\"")).map_err(Status::internal)?;
        let packed = (plain.len() >= answer::GZIP_FROM).then(|| answer::gzip(&plain).into());
        let ready = Arc::new(Ready { plain, packed, hash, etag });
        let mut made = self.made.lock();
        // Documents of definitions that have gone are not asked for again.
        made.retain(|it, made| matches!(it, Wanted::Builtin(_)) || made.versions.0 >= versions.0);
        made.insert(wanted, Made { versions, ready: Arc::clone(&ready) });
        Ok(Some(ready))
    }

    fn v2(&self, encode: impl Fn(&meta::Value) -> Vec<u8>) -> (Bytes, String) {
        let hash = self.served.openapi_v2_hash(&self.builtin);
        (encode(&self.served.openapi_v2(&self.builtin)).into(), hash)
    }
}

fn hash(text: &[u8]) -> String {
    Sha256::digest(text).iter().take(16).map(|it| format!("{it:02X}")).collect()
}
