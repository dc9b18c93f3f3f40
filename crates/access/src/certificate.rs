//! Who a client certificate stands for: the common name is the user, the organizations are the groups.
//!
//! Deliberately not here: whether the certificate is signed by a trusted authority and still valid. The TLS layer
//! has decided that before this is asked.

use sha2::{Digest, Sha256};
use x509_parser::{
    certification_request::X509CertificationRequest,
    pem::parse_x509_pem,
    prelude::{FromDer, X509Certificate, X509Name, X509Version},
};

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
    #[error("the certificate is not of X.509 version 3")]
    OldVersion,
    #[error("the subject of the certificate cannot be read")]
    Unreadable,
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
    let name = attributes(subject, COMMON_NAME_OID)?.pop().filter(|it| !it.is_empty());
    let mut user = User {
        name: name.ok_or(CertificateError::NoUser)?,
        groups: attributes(subject, ORGANIZATION_OID)?,
        ..User::default()
    };
    match attributes(subject, UID_OID)?.as_slice() {
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
    let name = attributes(certificate.subject(), COMMON_NAME_OID)?.pop().unwrap_or_default();
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
    if !rest.is_empty() {
        return Err(CertificateError::Malformed);
    }
    // Older ones cannot say what they are for: one for anything at all would do for a user.
    if certificate.version() == X509Version::V3 { Ok(certificate) } else { Err(CertificateError::OldVersion) }
}

/// The organizations that a certificate signing request asks for: what the certificate's groups would be.
pub fn organizations_of_request(pem: &[u8]) -> Result<Vec<String>, String> {
    if pem.len() > MAX_BYTES {
        return Err("the request is too long".to_owned());
    }
    let block = parse_x509_pem(pem).ok().map(|(_, it)| it).filter(|it| it.label == "CERTIFICATE REQUEST");
    let block = block.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|it| it.to_string())?;
    attributes(&request.certification_request_info.subject, ORGANIZATION_OID).map_err(|it| it.to_string())
}

/// All attributes of a kind. One that cannot be read is not left out: without it the subject would be somebody else.
fn attributes(name: &X509Name<'_>, oid: &str) -> Result<Vec<String>, CertificateError> {
    let all = name.iter_attributes().filter(|it| it.attr_type().to_id_string() == oid);
    all.map(|it| text(it.attr_value().tag().0, it.attr_value().data)).collect()
}

/// The text of an ASN.1 string, as Go reads it.
fn text(tag: u32, bytes: &[u8]) -> Result<String, CertificateError> {
    const UTF8: u32 = 12;
    const NUMERIC: u32 = 18;
    const PRINTABLE: u32 = 19;
    const T61: u32 = 20;
    const IA5: u32 = 22;
    const BMP: u32 = 30;
    let text = match tag {
        UTF8 => String::from_utf8(bytes.to_vec()).ok(),
        NUMERIC | PRINTABLE | IA5 if bytes.is_ascii() => String::from_utf8(bytes.to_vec()).ok(),
        T61 => Some(bytes.iter().copied().map(char::from).collect()),
        BMP if bytes.len().is_multiple_of(2) => {
            let units: Vec<u16> =
                bytes.chunks_exact(2).map(|it| u16::from_be_bytes([it[0], it[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    };
    text.ok_or(CertificateError::Unreadable)
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

    /// A group that was left out could be the one that takes rights away, and a name that was left out gives way to the
    /// one before it.
    #[test]
    fn what_cannot_be_read_is_not_left_out() {
        assert_eq!(text(12, b"a\xff"), Err(CertificateError::Unreadable));
        assert_eq!(text(19, b"a\xff"), Err(CertificateError::Unreadable));
        assert_eq!(text(28, b"\0\0\0a"), Err(CertificateError::Unreadable));
        assert_eq!(text(30, b"\0a\0"), Err(CertificateError::Unreadable));
        assert_eq!(text(30, b"\0a\0b").as_deref(), Ok("ab"));
        assert_eq!(text(20, b"\xfc").as_deref(), Ok("\u{fc}"));
        let mut der =
            certificate(&[(DnType::CommonName, "first"), (DnType::OrganizationName, "organization")]);
        let at = der.windows(12).rposition(|it| it == b"organization").unwrap();
        der[at] = 0xff;
        assert_eq!(user_from_certificate(&der), Err(CertificateError::Unreadable));
    }

    #[test]
    fn organizations_of_requests_are_read() {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        assert_eq!(organizations_of_request(request.as_bytes()), Ok(vec!["system:masters".to_owned()]));
        assert!(organizations_of_request(b"nonsense").is_err());
        let other = request.replace("CERTIFICATE REQUEST", "CERTIFICATE");
        assert_eq!(
            organizations_of_request(other.as_bytes()),
            Err("PEM block type must be CERTIFICATE REQUEST".to_owned())
        );
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
