//! Whoever is no server and says otherwise, over the network: it changes nothing.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{
    Client, Convoy,
    convoy::{ADMIN_TOKEN, USER_TOKEN},
};

use super::fleet::{ALL_JOBS, Fleet, JOBS, get_with, job};

/// What only servers may say.
const FORGED: [(&str, &str); 6] = [
    ("x-kubernetes-peer-proxied", "true"),
    ("x-convoy-forwarded-by", "apiserver-x"),
    ("x-remote-user", "system:apiserver"),
    ("x-remote-uid", "1"),
    ("x-remote-group", "system:masters"),
    ("x-remote-extra-scopes", "all"),
];

/// Who a server takes the sender of forged headers for.
async fn taken_for(client: &Client) -> Result<String> {
    taken_by(client, &FORGED).await
}

async fn taken_by(client: &Client, headers: &[(&str, &str)]) -> Result<String> {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let mut request = client.request(http::Method::POST, path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = client.exchange(request.body(review.to_string().into())?).await?;
    let review: Value = answer.json()?;
    Ok(review["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned())
}

async fn cluster() -> Result<Option<(Fleet, Convoy, Convoy)>> {
    let Some(fleet) = Fleet::new().await? else { return Ok(None) };
    let (a, b) = fleet.two().await?;
    a.admin().post(JOBS, &job("one")).await?.expect(201)?;
    Ok(Some((fleet, a, b)))
}

/// The mark would have stopped the request at this server, with 503.
async fn still_gets_the_job(client: &Client) -> Result<()> {
    let list = get_with(client, ALL_JOBS, &FORGED).await?.expect(200)?;
    ensure!(list["items"].as_array().is_some_and(|it| it.len() == 1), "{list}");
    Ok(())
}

async fn is_refused_as(client: &Client, name: &str) -> Result<()> {
    let answer = get_with(client, ALL_JOBS, &FORGED).await?.expect(403)?;
    ensure!(
        answer["message"].as_str().is_some_and(|it| it.contains(&format!("User \"{name}\""))),
        "{answer}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_with_forged_headers_is_whose_it_is() -> Result<()> {
    let Some((_fleet, a, b)) = cluster().await? else { return Ok(()) };
    still_gets_the_job(&b.client(Some(ADMIN_TOKEN))).await?;
    for server in [&a, &b] {
        is_refused_as(&server.client(Some(USER_TOKEN)), "user").await?;
        ensure!(taken_for(&server.client(Some(USER_TOKEN))).await? == "user");
        is_refused_as(&server.client(None), "system:anonymous").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_a_client_with_forged_headers_is_whose_it_is() -> Result<()> {
    let Some((fleet, a, b)) = cluster().await? else { return Ok(()) };
    let read = |name: &str| std::fs::read(fleet.cert(name));
    let with = |server: &Convoy, name: &str| -> Result<Client> {
        let (certificate, key) = (read(&format!("{name}.crt"))?, read(&format!("{name}.key"))?);
        Client::with_certificate(server.base(), server.ca(), &certificate, &key)
    };
    let plain = get_with(&with(&b, "admin")?, ALL_JOBS, &[]).await?.expect(200)?;
    ensure!(plain["items"].as_array().is_some_and(|it| it.len() == 1));
    still_gets_the_job(&with(&b, "admin")?).await?;
    for server in [&a, &b] {
        let taken = taken_for(&with(server, "admin")?).await?;
        ensure!(taken != "system:apiserver" && !taken.is_empty(), "{taken}");
        // The certificate of serving is no client's, and no server's that hands requests on.
        let serving = get_with(&with(server, "apiserver")?, ALL_JOBS, &FORGED).await;
        ensure!(serving.as_ref().map_or(true, |it| matches!(it.status.as_u16(), 401 | 403)), "{serving:?}");
    }
    // The same headers from a front proxy are believed, or none of this would prove anything; but not the mark, because
    // no member has sent it.
    let peer = get_with(&with(&b, "front-proxy-client")?, ALL_JOBS, &FORGED).await?;
    ensure!(peer.status == 503, "marked, and by nobody: {} {}", peer.status, peer.text());
    ensure!(peer.text().contains("no member of this cluster"), "{}", peer.text());
    ensure!(taken_by(&with(&a, "front-proxy-client")?, &FORGED[1..]).await? == "system:apiserver");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_authority_is_nobodys() -> Result<()> {
    let Some((_fleet, a, b)) = cluster().await? else { return Ok(()) };
    let other = tempfile::tempdir()?;
    // Another cluster's keys have the same names, and the same serial numbers for all anybody knows.
    let stranger =
        Convoy::start(testkit::Options::embedded(crate::fixture::BINARY).certs(other.path())).await?;
    drop(stranger);
    let read = |name: &str| std::fs::read(other.path().join(name));
    for name in ["admin", "front-proxy-client"] {
        let (certificate, key) = (read(&format!("{name}.crt"))?, read(&format!("{name}.key"))?);
        for server in [&a, &b] {
            let client = Client::with_certificate(server.base(), server.ca(), &certificate, &key)?;
            let answer = get_with(&client, ALL_JOBS, &FORGED).await;
            ensure!(
                answer.as_ref().map_or(true, |it| matches!(it.status.as_u16(), 401 | 403)),
                "{name}: {answer:?}"
            );
        }
    }
    Ok(())
}
