//! The token that lets a list go on: which revision it shows and which key comes next. Upstream's shape, and one field
//! more.
//!
//! A token comes back from clients, so everything in it is checked: it cannot reach outside the collection asked for.

use base64::{
    DecodeError, Engine,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::URL_SAFE_NO_PAD},
};
use meta::Status;
use serde::{Deserialize, Serialize};
use store::Revision;

const FORM: &str = "meta.k8s.io/v1";
const MAX_BYTES: usize = 4096;

/// As Go reads it: what is left over behind the last byte does not matter.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continue {
    /// The revision that the list shows; `None` goes on with whatever is there now.
    pub revision: Option<Revision>,
    /// The last key that was handed out, without the collection's prefix.
    pub after: String,
    /// How many keys are behind that, if it is known: they need not be counted for every page.
    pub left: Option<u64>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Wire {
    v: String,
    rv: i64,
    start: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
}

impl Continue {
    /// The token.
    pub fn encode(&self) -> String {
        let rv = self.revision.map_or(-1, |it| i64::try_from(it.get()).unwrap_or(i64::MAX));
        let wire = Wire { v: FORM.to_owned(), rv, start: format!("{}\0", self.after), left: self.left };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).expect("a token must serialize"))
    }

    /// Reads a token, or 400.
    pub fn decode(token: &str) -> Result<Self, Status> {
        let refuse = |why: String| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        if token.len() > MAX_BYTES {
            return Err(refuse("it is too long".to_owned()));
        }
        let bytes = LENIENT.decode(token).map_err(|it| refuse(illegal(&it, token)))?;
        let tree = schema::json::parse(&bytes, schema::json::Limits::REQUEST);
        let tree = tree.map_err(|it| refuse(it.to_string()))?;
        let wire: Wire = serde_json::from_value(tree).map_err(|it| refuse(it.to_string()))?;
        if wire.v != FORM {
            return Err(refuse(format!("server does not recognize this encoded version {:?}", wire.v)));
        }
        let revision = match wire.rv {
            -1 => None,
            rv => match u64::try_from(rv) {
                Ok(rv) if rv > 0 => Some(Revision::new(rv)),
                _ => {
                    return Err(refuse(
                        "incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned(),
                    ));
                }
            },
        };
        let after = wire.start.trim_end_matches('\0').trim_start_matches('/').to_owned();
        if after.is_empty() {
            return Err(refuse("encoded start key empty (version meta.k8s.io/v1)".to_owned()));
        }
        if after.split('/').any(|it| it == "." || it == "..") {
            return Err(refuse(format!("invalid start key: {after:?}")));
        }
        Ok(Self { revision, after, left: wire.left })
    }
}

/// The words of Go's decoder.
fn illegal(error: &DecodeError, token: &str) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => *at,
        DecodeError::InvalidLength(_) => token.len(),
        DecodeError::InvalidPadding => token.find('=').unwrap_or(token.len()),
    };
    format!("illegal base64 data at input byte {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_the_way_to_the_client_and_back() {
        for (revision, left) in [(None, None), (Some(Revision::new(17)), Some(3))] {
            let token = Continue { revision, after: "default/a".to_owned(), left };
            assert_eq!(Continue::decode(&token.encode()), Ok(token));
        }
    }

    #[test]
    fn forged_tokens_are_refused() {
        let wire = |json: &str| URL_SAFE_NO_PAD.encode(json);
        for token in [
            "%%%".to_owned(),
            "x".repeat(10_000),
            wire("{}"),
            wire(r#"{"v":"meta.k8s.io/v2","rv":1,"start":"a"}"#),
            wire(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            wire(r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a"}"#),
            wire(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
            wire(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../secrets/a"}"#),
        ] {
            assert_eq!(Continue::decode(&token).unwrap_err().code, 400, "{token}");
        }
    }
}
