//! Conversion webhooks of custom resources, called over HTTPS.
//!
//! Deliberately not here: what is sent and whether the answer makes sense (`registry`), and the calls themselves
//! (`webhook`); this only joins the two.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use registry::custom::{Call, ClientConfig, Webhooks};
use webhook::{ByName, Client, Limits};

/// How long a call may take in all, as upstream.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The largest answer: a batch of large objects.
const MAX_ANSWER: usize = 64 << 20;

/// Calls conversion webhooks.
#[derive(Clone, Debug)]
pub struct ConversionWebhooks(Client);

impl ConversionWebhooks {
    /// With connections of its own.
    pub fn new() -> Self {
        Self(Client::new(Arc::new(ByName), Limits { response_bytes: MAX_ANSWER, ..Limits::default() }))
    }
}

impl Default for ConversionWebhooks {
    fn default() -> Self {
        Self::new()
    }
}

impl Webhooks for ConversionWebhooks {
    fn call(&self, config: &Arc<ClientConfig>, review: Bytes) -> Call {
        let (client, config) = (self.0.clone(), Arc::clone(config));
        Box::pin(async move {
            let endpoint = webhook::Endpoint::of(&config.client).map_err(|it| it.to_string())?;
            client.post(&endpoint, review, TIMEOUT).await.map_err(|it| it.to_string())
        })
    }
}
