//! How the servers of a cluster agree: recorded once at first start, the same for all.
//!
//! Deliberately not here: what the modes do; see [`crate::agree`] and [`crate::encoding`].

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    ClusterId,
    record::{FORMAT, Record, Unknown},
};

/// The protocol that this release speaks. A server that meets a newer one does not join.
pub const PROTOCOL: u32 = 1;

/// How the version of a resource is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agreement {
    /// All write the selection; it moves when all counted members vote for the same version.
    #[default]
    Vote,
    /// Each writes what it prefers and says so; a common version shows while all say the same.
    Report,
}

/// What is promised of a put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Guarantee {
    /// Every put requires the fence.
    #[default]
    Strict,
    /// Puts follow the selection within a minute.
    Loose,
}

/// What is recorded of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// See [`crate::record`].
    pub format: u32,
    /// How versions are agreed on.
    pub agreement: Agreement,
    /// What a put promises.
    pub guarantee: Guarantee,
    /// The newest protocol in use.
    pub protocol: u32,
    /// Which cluster this is; `None` in what 0.1.0 recorded, until a server of a later release starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ClusterId>,
    /// Of newer releases.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// What a server was started with; `None` is a flag that was not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `--storage-version-agreement`.
    pub agreement: Option<Agreement>,
    /// `--storage-version-guarantee`.
    pub guarantee: Option<Guarantee>,
}

/// What to do with the modes at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Modes {
    /// The first start: record these, requiring that nothing is recorded.
    Record(ClusterRecord),
    /// As recorded, but without an id: record this instead, requiring that nothing else has changed.
    Name(ClusterRecord),
    /// As recorded.
    Same(ClusterRecord),
}

/// Why a server may not take part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModesError {
    /// A flag says something else than the record.
    #[error(
        "this server was started with --{flag}={wanted}, the cluster uses {recorded}: start it with \
         --{flag}={recorded}, or without the flag"
    )]
    Differs {
        /// The flag.
        flag: &'static str,
        /// Its value here.
        wanted: String,
        /// The recorded value.
        recorded: String,
    },
    /// The cluster has moved on to a protocol that this release does not know.
    #[error("the cluster uses protocol {recorded}, this release knows protocols up to {PROTOCOL}")]
    NewerProtocol {
        /// The cluster's.
        recorded: u32,
    },
}

/// Compares what a server wants with what is recorded. A cluster that has no id yet gets `fresh`.
pub fn check_modes(
    recorded: Option<&ClusterRecord>,
    wanted: Wanted,
    fresh: &ClusterId,
) -> Result<Modes, ModesError> {
    let Wanted { agreement, guarantee } = wanted;
    let Some(record) = recorded else {
        return Ok(Modes::Record(ClusterRecord {
            format: FORMAT,
            agreement: agreement.unwrap_or_default(),
            guarantee: guarantee.unwrap_or_default(),
            protocol: PROTOCOL,
            id: Some(fresh.clone()),
            unknown: Unknown::new(),
        }));
    };
    if record.protocol > PROTOCOL {
        return Err(ModesError::NewerProtocol { recorded: record.protocol });
    }
    same("storage-version-agreement", agreement, record.agreement)?;
    same("storage-version-guarantee", guarantee, record.guarantee)?;
    if record.id.is_none() {
        return Ok(Modes::Name(ClusterRecord { id: Some(fresh.clone()), ..record.clone() }));
    }
    Ok(Modes::Same(record.clone()))
}

fn same<T: Copy + PartialEq + fmt::Display>(
    flag: &'static str,
    wanted: Option<T>,
    recorded: T,
) -> Result<(), ModesError> {
    match wanted {
        Some(wanted) if wanted != recorded => {
            Err(ModesError::Differs { flag, wanted: wanted.to_string(), recorded: recorded.to_string() })
        }
        _ => Ok(()),
    }
}

impl Record for ClusterRecord {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Agreement::Vote => "vote",
            Agreement::Report => "report",
        })
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guarantee::Strict => "strict",
            Guarantee::Loose => "loose",
        })
    }
}

impl FromStr for Agreement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "vote" => Ok(Agreement::Vote),
            "report" => Ok(Agreement::Report),
            _ => Err(format!("{text:?} is neither vote nor report")),
        }
    }
}

impl FromStr for Guarantee {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "strict" => Ok(Guarantee::Strict),
            "loose" => Ok(Guarantee::Loose),
            _ => Err(format!("{text:?} is neither strict nor loose")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> ClusterId {
        ClusterId::new("fresh")
    }

    fn recorded(agreement: Agreement, guarantee: Guarantee) -> ClusterRecord {
        let wanted = Wanted { agreement: Some(agreement), guarantee: Some(guarantee) };
        match check_modes(None, wanted, &ClusterId::new("first")) {
            Ok(Modes::Record(record)) => record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_server_records_vote_and_strict() {
        let Ok(Modes::Record(record)) = check_modes(None, Wanted::default(), &fresh()) else { panic!() };
        assert_eq!((record.agreement, record.guarantee), (Agreement::Vote, Guarantee::Strict));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(text, r#"{"format":1,"agreement":"vote","guarantee":"strict","protocol":1,"id":"fresh"}"#);
    }

    #[test]
    fn a_cluster_is_named_once() {
        let text = r#"{"format":1,"agreement":"report","guarantee":"strict","protocol":1,"more":[7]}"#;
        let of_old: ClusterRecord = serde_json::from_str(text).unwrap();
        let Ok(Modes::Name(named)) = check_modes(Some(&of_old), Wanted::default(), &fresh()) else {
            panic!()
        };
        assert_eq!(named, ClusterRecord { id: Some(fresh()), ..of_old });
        let other = ClusterId::new("another");
        assert_eq!(check_modes(Some(&named), Wanted::default(), &other), Ok(Modes::Same(named.clone())));
        let text = serde_json::to_value(&named).unwrap();
        assert_eq!(text["more"][0], 7, "what a newer release recorded must stay");
    }

    #[test]
    fn a_server_with_other_modes_names_both() {
        let record = recorded(Agreement::Report, Guarantee::Strict);
        let wanted = Wanted { agreement: Some(Agreement::Vote), guarantee: None };
        let error = check_modes(Some(&record), wanted, &fresh()).unwrap_err().to_string();
        assert!(error.contains("--storage-version-agreement=vote, the cluster uses report"), "{error}");
        let wanted = Wanted { agreement: None, guarantee: Some(Guarantee::Loose) };
        let error = check_modes(Some(&record), wanted, &fresh()).unwrap_err().to_string();
        assert!(error.contains("--storage-version-guarantee=loose, the cluster uses strict"), "{error}");
    }

    #[test]
    fn a_server_without_flags_does_as_the_others() {
        let record = recorded(Agreement::Report, Guarantee::Loose);
        assert_eq!(check_modes(Some(&record), Wanted::default(), &fresh()), Ok(Modes::Same(record.clone())));
    }

    #[test]
    fn a_newer_protocol_is_not_joined() {
        let record = ClusterRecord { protocol: 2, ..recorded(Agreement::Vote, Guarantee::Strict) };
        let error = check_modes(Some(&record), Wanted::default(), &fresh()).unwrap_err();
        assert_eq!(error, ModesError::NewerProtocol { recorded: 2 });
    }
}
