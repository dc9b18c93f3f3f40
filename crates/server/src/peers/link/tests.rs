//! A connection, with a server of h2's own at its other end.

use h2::server;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::DuplexStream;

use super::*;
use crate::body::{full_body, no_body};

type Server = server::Connection<DuplexStream, Bytes>;

/// Both ends. The server's is driven by whoever waits for requests.
async fn pair() -> (Link, Server, Tasks) {
    let (ours, theirs) = tokio::io::duplex(256 * 1024);
    let tasks = Tasks::new();
    let (link, server) = tokio::join!(Link::open(ours, &tasks), server::handshake(theirs));
    (link.unwrap(), server.unwrap(), tasks)
}

fn request(body: RequestBody) -> Request<RequestBody> {
    Request::post("https://there:1/path?b=%2F").body(body).unwrap()
}

fn drain(mut server: Server) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move { while let Some(Ok(_)) = server.accept().await {} })
}

#[tokio::test]
async fn bodies_flow_in_both_directions() {
    let (mut link, mut server, tasks) = pair().await;
    let sent = Bytes::from(vec![7; 300_000]);
    let mut held = link.clone();
    let client = async {
        let response = held.send(request(full_body(sent.clone())), &tasks).await.ok().unwrap();
        whole(response.into_body()).await.unwrap()
    };
    let answering = async {
        let (request, mut respond) = server.accept().await.unwrap().unwrap();
        assert_eq!(request.headers()[header::CONTENT_LENGTH], "300000");
        assert_eq!(request.uri().path_and_query().unwrap(), "/path?b=%2F");
        let driven = drain(server);
        let received = whole(request.into_body()).await.unwrap();
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        for (piece, is_last) in [("a", false), ("b", true)] {
            stream.send_data(Bytes::from(piece), is_last).unwrap();
        }
        (received, driven)
    };
    let (answered, (received, driven)) = tokio::join!(client, answering);
    assert_eq!((answered, received), (Bytes::from("ab"), sent));
    assert!(!link.is_closed());
    driven.abort();
}

#[tokio::test]
async fn a_request_without_a_body_ends_with_its_head() {
    let (mut link, mut server, tasks) = pair().await;
    let (_, ended) = tokio::join!(link.send(request(no_body()), &tasks), async {
        let (request, mut respond) = server.accept().await.unwrap().unwrap();
        respond.send_response(Response::new(()), true).unwrap();
        drain(server);
        request.body().is_end_stream()
    });
    assert!(ended);
}

#[tokio::test]
async fn a_body_that_breaks_off_does_not_look_whole() {
    let (mut link, mut server, tasks) = pair().await;
    let pieces = [Ok(http_body::Frame::data(Bytes::from("half"))), Err(BoxError::from("gone"))];
    let body = StreamBody::new(stream::iter(pieces)).boxed_unsync();
    let (answer, read) = tokio::join!(link.send(request(body), &tasks), async {
        let (request, _respond) = server.accept().await.unwrap().unwrap();
        drain(server);
        whole(request.into_body()).await
    });
    assert!(matches!(answer, Err(SendError::Sent(_))));
    assert!(read.is_err());
}

#[tokio::test]
async fn a_request_that_meets_a_closed_connection_keeps_its_body() {
    let (mut link, server, tasks) = pair().await;
    drop(server);
    while !link.is_closed() {
        tokio::task::yield_now().await;
    }
    let Err(SendError::Unsent(_, body)) = link.send(request(full_body("kept")), &tasks).await else {
        panic!("nothing can have been sent")
    };
    assert_eq!(body.collect().await.unwrap().to_bytes(), "kept");
}

#[tokio::test]
async fn a_server_that_wants_to_go_gets_nothing_new() {
    let (mut link, mut server, _tasks) = pair().await;
    server.graceful_shutdown();
    drain(server);
    while !link.is_closed() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn places_are_given_back() {
    let (link, _server, _tasks) = pair().await;
    let held = [link.hold(), link.hold()];
    assert_eq!(link.n_requests(), 2);
    drop(held);
    assert_eq!(link.n_requests(), 0);
}

#[test]
fn silence_is_noticed_only_while_somebody_waits() {
    let mut silence = Silence::default();
    for _ in 0..100 {
        assert_eq!(silence.tick(1, false), Then::Wait);
    }
    assert_eq!(silence.tick(1, true), Then::Ping, "it was silent before the request, too");
    for _ in 1..PING_TIMEOUT {
        assert_eq!(silence.tick(1, true), Then::Wait);
    }
    assert_eq!(silence.tick(1, true), Then::GiveUp);
}

#[test]
fn whatever_arrives_is_a_sign_of_life() {
    let mut silence = Silence::default();
    for n_reads in 1..100 {
        assert_eq!(silence.tick(n_reads, true), Then::Wait);
        for _ in 1..PING_AFTER {
            assert_eq!(silence.tick(n_reads, true), Then::Wait);
        }
        assert_eq!(silence.tick(n_reads, true), Then::Ping);
    }
}
