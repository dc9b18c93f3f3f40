//! Who somebody is, what they may do, and what is written down about it.
//!
//! Responsible for authentication (tokens, certificates, front-proxy headers, ServiceAccount tokens), impersonation,
//! RBAC with its bootstrap policy, the review kinds, and audit policy and events.
//! Deliberately not here: HTTP types, I/O, async, a clock. The caller brings header values, bytes and the time.
//! Start reading at [`user`], [`attributes`] and [`rbac`]; [`authorizer`] is what a server asks.
#![allow(
    clippy::result_large_err,
    reason = "a refusal is the Status that the client gets, and refusals are rare"
)]

pub mod attributes;
pub mod audit;
pub mod authorizer;
pub mod bootstrap;
pub mod certificate;
pub mod impersonation;
pub mod rbac;
pub mod request_header;
pub mod review;
pub mod rule;
pub mod service_account;
pub mod token_file;
pub mod user;

pub use attributes::{
    Attributes, OwnedAttributes, OwnedTarget, Target, Verdict, forbidden_message, forbidden_status,
};
pub use audit::{AuditDecision, AuditEvent, Level, Policy, PolicyError, Stage};
pub use authorizer::{Authorizer, Mode, ModeError};
pub use bootstrap::{Bootstrap, bootstrap, reconcile};
pub use certificate::{CertificateError, user_from_certificate};
pub use impersonation::{Impersonation, ImpersonationCheck};
pub use rbac::write::{aggregate, check_binding_write, check_role_write};
pub use rbac::{Rbac, RbacKind, Rules};
pub use request_header::{RequestHeaderConfig, headers_of_user, user_from_headers};
pub use rule::PolicyRule;
pub use service_account::{IssuedToken, TokenIssuer, TokenSpec, TokenVerifier, VerifiedServiceAccount};
pub use token_file::{TokenFile, TokenFileError};
pub use user::User;
