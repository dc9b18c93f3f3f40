//! Answers that are made before the request was sent to its end: whoever is still sending sees them.

use std::time::Duration;

use anyhow::{Context, Result};
use testkit::frames::{Frame, Frames};
use testkit::raw::{Raw, Reaction};

use crate::fixture;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(60);

/// The stream was reset as soon as the answer was made: curl failed in ten cases of twelve.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_not_reset_while_its_client_sends() -> Result<()> {
    let convoy = fixture::embedded().await;
    let mut frames = Frames::connect(convoy.port(), convoy.ca(), 65_535).await?;
    for path in [MAPS, "/nowhere"] {
        let stream = frames.head("POST", path, "not-a-token", "application/json", false).await?;
        for piece in 0..8 {
            frames.data(stream, &[b' '; 8_000], piece == 7).await?;
        }
        let mut is_answered = false;
        loop {
            match frames.next(PATIENCE).await.context("there must be an answer")? {
                Frame::Headers { stream: it, ends } if it == stream => {
                    is_answered = true;
                    if ends {
                        break;
                    }
                }
                Frame::Data { stream: it, ends: true, .. } if it == stream => break,
                Frame::Reset { stream: it, code } if it == stream => {
                    panic!("{path}: reset with {code}; answered before: {is_answered}")
                }
                _ => {}
            }
        }
        // Nor afterwards: the next thing that is heard of is another stream.
        let other = frames.request("GET", "/livez", "", "", b"").await?;
        loop {
            match frames.next(PATIENCE).await.context("there must be an answer")? {
                Frame::Reset { stream: it, code } if it == stream => panic!("{path}: reset with {code}"),
                Frame::Headers { stream: it, .. } if it == other => break,
                _ => {}
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_seen_by_a_client_that_sends_on() -> Result<()> {
    let convoy = fixture::embedded().await;
    for length in [200_000_usize, 3_000_000, 6_000_000] {
        let mut raw = Raw::connect(&convoy).await?;
        let head = format!(
            "POST {MAPS} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer nobody\r\ncontent-length: {length}\r\n\r\n"
        );
        raw.send(head.as_bytes()).await;
        // A server that has had enough closes; what it said before that must still be there.
        let piece = vec![b' '; 100_000];
        for _ in 0..length / piece.len() {
            if !raw.send(&piece).await {
                break;
            }
        }
        match raw.reaction(PATIENCE).await {
            Reaction::Answered { status, text } => {
                assert_eq!(status, 401, "{text}");
                // Who is not listened to any more is told so.
                let says_so = text.to_ascii_lowercase().contains("connection: close");
                assert!(says_so || length < 4 << 20, "{text}");
            }
            other => panic!("{length} bytes: {other:?}"),
        }
    }
    Ok(())
}
