//! Who a client certificate stands for: the common name is the user, the organizations are the groups.
//!
//! Deliberately not here: whether the certificate is signed by a trusted authority and still valid. The TLS layer
//! has decided that before this is asked.

use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

use crate::User;
use crate::user::CREDENTIAL_ID;

/// The largest certificate that is looked at.
pub const MAX_BYTES: usize = 64 << 10;
/// The attribute of the subject that carries the user's uid.
const UID_OID: &str = "1.3.6.1.4.1.57683.2";
const COMMON_NAME_OID: &str = "2.5.4.3";
const ORGANIZATION_OID: &str = "2.5.4.10";

/// Why a certificate stands for nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error("not a DER certificate")]
    Malformed,
    #[error("the certificate has no common name, which would be the user")]
    NoUser,
    #[error("the certificate must have at most one, non-empty uid")]
    BadUid,
    #[error("x509: subject with cn={0} is not in the allowed list")]
    NotAllowed(String),
}

/// The user that the certificate stands for, `system:authenticated` included.
pub fn user_from_certificate(der: &[u8]) -> Result<User, CertificateError> {
    let certificate = parse(der)?;
    let subject = certificate.subject();
    let name = attributes(subject, COMMON_NAME_OID).pop().filter(|it| !it.is_empty());
    let mut user = User {
        name: name.ok_or(CertificateError::NoUser)?,
        groups: attributes(subject, ORGANIZATION_OID),
        ..User::default()
    };
    match attributes(subject, UID_OID).as_slice() {
        [] => {}
        [uid] if !uid.is_empty() => user.uid.clone_from(uid),
        _ => return Err(CertificateError::BadUid),
    }
    user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={}", hex(&Sha256::digest(der)))]);
    user.add_authenticated_group();
    Ok(user)
}

/// Whether a front proxy's certificate has one of the names; no names means that any is fine.
pub fn check_allowed_name(der: &[u8], allowed_names: &[String]) -> Result<(), CertificateError> {
    let certificate = parse(der)?;
    let name = attributes(certificate.subject(), COMMON_NAME_OID).pop().unwrap_or_default();
    if allowed_names.is_empty() || allowed_names.contains(&name) {
        Ok(())
    } else {
        Err(CertificateError::NotAllowed(name))
    }
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, CertificateError> {
    if der.len() > MAX_BYTES {
        return Err(CertificateError::Malformed);
    }
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError::Malformed)?;
    if rest.is_empty() { Ok(certificate) } else { Err(CertificateError::Malformed) }
}

fn attributes(name: &X509Name<'_>, oid: &str) -> Vec<String> {
    let all = name.iter_attributes().filter(|it| it.attr_type().to_id_string() == oid);
    all.filter_map(|it| it.as_str().ok()).map(str::to_owned).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(parts: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn names_and_organizations_are_read() {
        let der = certificate(&[(DnType::OrganizationName, "system:masters"), (DnType::CommonName, "admin")]);
        let user = user_from_certificate(&der).unwrap();
        assert_eq!(user.name, "admin");
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        let credential = &user.extra[CREDENTIAL_ID][0];
        assert_eq!(*credential, format!("X509SHA256={}", hex(&Sha256::digest(&der))));
        assert_eq!(credential.len(), "X509SHA256=".len() + 64);
    }

    #[test]
    fn a_uid_is_read() {
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let der = certificate(&[(DnType::CommonName, "admin"), (uid, "u-1")]);
        assert_eq!(user_from_certificate(&der).unwrap().uid, "u-1");
    }

    #[test]
    fn a_certificate_without_a_name_is_nobody() {
        let der = certificate(&[(DnType::OrganizationName, "x")]);
        assert_eq!(user_from_certificate(&der), Err(CertificateError::NoUser));
        let mut longer = certificate(&[(DnType::CommonName, "admin")]);
        longer.push(0);
        assert_eq!(user_from_certificate(&longer), Err(CertificateError::Malformed));
    }

    #[test]
    fn allowed_names_are_checked() {
        let der = certificate(&[(DnType::CommonName, "proxy")]);
        assert_eq!(check_allowed_name(&der, &[]), Ok(()));
        assert_eq!(check_allowed_name(&der, &["proxy".to_owned()]), Ok(()));
        assert_eq!(
            check_allowed_name(&der, &["other".to_owned()]),
            Err(CertificateError::NotAllowed("proxy".to_owned()))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = user_from_certificate(&bytes);
        }

        #[test]
        fn a_damaged_certificate_is_read_or_refused(at in 0usize..200, with in any::<u8>()) {
            let mut der = certificate(&[(DnType::CommonName, "admin")]);
            if let Some(byte) = der.get_mut(at) {
                *byte = with;
            }
            let _ = user_from_certificate(&der);
        }
    }
}
