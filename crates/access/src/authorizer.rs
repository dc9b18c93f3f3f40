//! The authorizers that a server is started with, asked in order.
//!
//! Two rules stand above them: `system:masters` may do everything, and callers without credentials get no further
//! than health and version, whatever is bound to them.

use std::sync::Arc;

use crate::attributes::{Attributes, Target, Verdict};
use crate::user::{ANONYMOUS, MASTERS, is_open_to_anonymous};
use crate::{PolicyRule, Rbac, Rules, User};

/// One entry of `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    AlwaysAllow,
    AlwaysDeny,
    Rbac,
}

/// Why `--authorization-mode` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    #[error("at least one authorization-mode must be passed")]
    Empty,
    #[error("authorization-mode {0:?} has mode specified more than once")]
    Duplicate(String),
    #[error("authorization-mode {0:?} is not a valid mode; this server has RBAC, AlwaysAllow and AlwaysDeny")]
    Unknown(String),
    #[error(
        "authorization-mode \"Node\" is not available: this server has no nodes to authorize; use \"RBAC\""
    )]
    Node,
    #[error(
        "authorization-mode {0:?} is not available: this server does not ask other servers; use \"RBAC\""
    )]
    NotHere(String),
}

/// Decides about requests.
#[derive(Clone, Debug)]
pub struct Authorizer {
    modes: Vec<Mode>,
    rbac: Arc<Rbac>,
}

impl Mode {
    /// Reads the comma-separated value of `--authorization-mode`.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ModeError> {
        let mut modes = Vec::new();
        for name in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let mode = match name {
                "AlwaysAllow" => Self::AlwaysAllow,
                "AlwaysDeny" => Self::AlwaysDeny,
                "RBAC" => Self::Rbac,
                "Node" => return Err(ModeError::Node),
                "Webhook" | "ABAC" => return Err(ModeError::NotHere(name.to_owned())),
                _ => return Err(ModeError::Unknown(name.to_owned())),
            };
            if modes.contains(&mode) {
                return Err(ModeError::Duplicate(name.to_owned()));
            }
            modes.push(mode);
        }
        if modes.is_empty() { Err(ModeError::Empty) } else { Ok(modes) }
    }
}

impl Authorizer {
    /// Asks `modes` in this order.
    pub fn new(modes: Vec<Mode>, rbac: Arc<Rbac>) -> Self {
        Self { modes, rbac }
    }

    /// The policy that is asked in mode RBAC.
    pub fn rbac(&self) -> &Arc<Rbac> {
        &self.rbac
    }

    /// Whether nothing is allowed but what the policy allows, `system:masters` apart.
    pub fn rests_on_policy(&self) -> bool {
        !self.modes.contains(&Mode::AlwaysAllow)
    }

    /// The first clear answer; if nobody has one, all reasons together.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        if attributes.user.is_in(MASTERS) {
            return Verdict::Allow(String::new());
        }
        if attributes.user.name == ANONYMOUS && !is_open(attributes.target) {
            return Verdict::NoOpinion(String::new());
        }
        let mut reasons = Vec::new();
        for mode in &self.modes {
            let verdict = match mode {
                Mode::AlwaysAllow => return Verdict::Allow(String::new()),
                Mode::AlwaysDeny => Verdict::NoOpinion("Everything is forbidden.".to_owned()),
                Mode::Rbac => self.rbac.authorize(attributes),
            };
            match verdict {
                Verdict::NoOpinion(reason) if reason.is_empty() => {}
                Verdict::NoOpinion(reason) => reasons.push(reason),
                Verdict::Allow(_) | Verdict::Deny(_) => return verdict,
            }
        }
        Verdict::NoOpinion(reasons.join("\n"))
    }

    /// Whether a decision about this may take long; see [`Rbac::is_long`].
    pub fn is_long(&self, user: &User, namespace: &str) -> bool {
        !user.is_in(MASTERS) && self.modes.contains(&Mode::Rbac) && self.rbac.is_long(user, namespace)
    }

    /// What the user may do in the namespace, for a SelfSubjectRulesReview.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Rules {
        let mut rules = Rules::default();
        for mode in &self.modes {
            match mode {
                Mode::AlwaysDeny => {}
                Mode::AlwaysAllow => {
                    rules.resource_rules.push(PolicyRule::resources(&["*"], &["*"], &["*"]));
                    rules.non_resource_rules.push(PolicyRule::urls(&["*"], &["*"]));
                }
                Mode::Rbac => {
                    let found = self.rbac.rules_for(user, namespace);
                    rules.resource_rules.extend(found.resource_rules);
                    rules.non_resource_rules.extend(found.non_resource_rules);
                    rules.errors.extend(found.errors);
                    rules.is_incomplete |= found.is_incomplete;
                }
            }
        }
        rules
    }
}

fn is_open(target: Target<'_>) -> bool {
    match target {
        Target::Path(path) => is_open_to_anonymous(path),
        Target::Resource { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(modes: &str, user: &User) -> Verdict {
        let authorizer = Authorizer::new(Mode::parse_list(modes).unwrap(), Arc::new(Rbac::new()));
        authorizer.authorize(&Attributes { user, verb: "get", target: Target::Path("/metrics") })
    }

    #[test]
    fn modes_are_read() {
        assert_eq!(Mode::parse_list("RBAC, AlwaysDeny"), Ok(vec![Mode::Rbac, Mode::AlwaysDeny]));
        assert_eq!(Mode::parse_list(" ,"), Err(ModeError::Empty));
        assert_eq!(Mode::parse_list("RBAC,RBAC"), Err(ModeError::Duplicate("RBAC".to_owned())));
        assert_eq!(Mode::parse_list("rbac"), Err(ModeError::Unknown("rbac".to_owned())));
        for unavailable in ["Node,RBAC", "Webhook", "ABAC"] {
            let error = Mode::parse_list(unavailable).unwrap_err().to_string();
            assert!(error.contains("is not available"), "{error}");
        }
    }

    #[test]
    fn nothing_opens_more_to_the_anonymous() {
        let anonymous = User::anonymous();
        assert_eq!(ask("AlwaysAllow", &anonymous), Verdict::NoOpinion(String::new()));
        let authorizer = Authorizer::new(vec![Mode::AlwaysAllow], Arc::new(Rbac::new()));
        let version = Attributes { user: &anonymous, verb: "get", target: Target::Path("/version") };
        assert!(authorizer.authorize(&version).is_allowed());
    }

    #[test]
    fn masters_may_do_everything() {
        let master = User { groups: vec![MASTERS.to_owned()], ..User::named("m") };
        assert_eq!(ask("AlwaysDeny", &master), Verdict::Allow(String::new()));
        let nobody = User::named("n");
        assert_eq!(ask("AlwaysDeny", &nobody), Verdict::NoOpinion("Everything is forbidden.".to_owned()));
        assert_eq!(ask("RBAC", &nobody), Verdict::NoOpinion(String::new()));
        assert_eq!(ask("RBAC,AlwaysAllow", &nobody), Verdict::Allow(String::new()));
    }
}
