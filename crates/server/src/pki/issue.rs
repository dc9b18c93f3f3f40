//! One authority, and one certificate that it vouches for: kept if usable, else made.

use std::{net::IpAddr, path::Path};

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
};

use super::{PkiError, ServingNames, new_key, parse_key, private, public, read_optional, unusable};
use crate::files::NewFile;

/// Certificates are renewed when less than this is left.
const RENEW_BEFORE_DAYS: i64 = 30;
const LEAF_DAYS: i64 = 365;
const AUTHORITY_DAYS: i64 = 3650;
const SECONDS_PER_DAY: i64 = 86_400;
/// Servers that share a directory add their names to one certificate; more than this is a mistake.
const MAX_NAMES: usize = 200;

/// Something that vouches for certificates, if its key is here.
pub(super) struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Option<Issuer<'static, KeyPair>>,
    name: &'static str,
}

/// A certificate as it should be.
pub(super) struct Leaf<'a> {
    pub(super) name: &'static str,
    pub(super) common_name: &'static str,
    pub(super) organization: Option<&'static str>,
    pub(super) purpose: Purpose<'a>,
}

pub(super) enum Purpose<'a> {
    Client,
    Server(&'a ServingNames),
}

impl Authority {
    /// The one in the folder, or a new one.
    pub(super) fn ensure(
        folder: &Path,
        name: &'static str,
        common_name: &str,
        now: Timestamp,
        drafts: &mut Vec<NewFile>,
    ) -> Result<Self, PkiError> {
        let (crt, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        match (read_optional(&crt)?, read_optional(&key)?) {
            (Some(pem), key_pem) => Self::load(name, &crt, &pem, &key, key_pem.as_deref(), now),
            (None, key_pem) => {
                // The key comes first onto the disk: alone, it is a start that was interrupted.
                let pair = match key_pem {
                    Some(pem) => parse_key(&key, &pem)?,
                    None => {
                        let pair = new_key(name)?;
                        drafts.push(private(key, pair.serialize_pem()));
                        pair
                    }
                };
                let mut params = params(name, common_name, None, now, AUTHORITY_DAYS);
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                params.key_usages = vec![
                    KeyUsagePurpose::KeyCertSign,
                    KeyUsagePurpose::CrlSign,
                    KeyUsagePurpose::DigitalSignature,
                ];
                let refused = |source| PkiError::Refused { what: format!("the authority {name}"), source };
                let certificate = params.self_signed(&pair).map_err(refused)?;
                drafts.push(public(crt, certificate.pem()));
                let certificate = CertificateDer::from(certificate);
                Ok(Self { certificate, issuer: Some(Issuer::new(params, pair)), name })
            }
        }
    }

    fn load(
        name: &'static str,
        path: &Path,
        pem: &str,
        key_path: &Path,
        key_pem: Option<&str>,
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| unusable(path, "does not hold a PEM certificate"))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|_| unusable(path, "holds a certificate that cannot be read"))?;
        if !parsed.is_ca() {
            return Err(unusable(path, "is not the certificate of an authority"));
        }
        if seconds_left(&parsed, now) <= 0 {
            return Err(unusable(path, "is the certificate of an authority that has expired"));
        }
        let issuer =
            match key_pem {
                None => None,
                Some(key_pem) => {
                    let pair = parse_key(key_path, key_pem)?;
                    if !is_pair(&parsed, &pair) {
                        return Err(unusable(key_path, format!("is not the key of {}", path.display())));
                    }
                    let issuer = Issuer::from_ca_cert_der(&certificate, pair);
                    Some(issuer.map_err(|source| PkiError::Refused {
                        what: format!("the authority {name}"),
                        source,
                    })?)
                }
            };
        Ok(Self { issuer, name, certificate: certificate.clone().into_owned() })
    }

    fn key_identifier(&self) -> Option<Vec<u8>> {
        let (_, parsed) = x509_parser::parse_x509_certificate(&self.certificate).ok()?;
        parsed.extensions().iter().find_map(|it| match it.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        })
    }
}

impl Leaf<'_> {
    /// Makes the certificate and its key, unless usable ones are there.
    pub(super) fn ensure(
        &self,
        folder: &Path,
        authority: &Authority,
        now: Timestamp,
        drafts: &mut Vec<NewFile>,
    ) -> Result<(), PkiError> {
        let (crt, key) =
            (folder.join(format!("{}.crt", self.name)), folder.join(format!("{}.key", self.name)));
        let (crt_pem, key_pem) = (read_optional(&crt)?, read_optional(&key)?);
        let names = match self.judge(crt_pem.as_deref(), key_pem.as_deref(), authority, now) {
            Verdict::Keep => return Ok(()),
            Verdict::Make(names) => names,
        };
        let Some(issuer) = &authority.issuer else {
            let missing = format!("must be made anew, but {}.key is not there", authority.name);
            return Err(unusable(&crt, missing));
        };
        let mut params = params(self.name, self.common_name, self.organization, now, LEAF_DAYS);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match self.purpose {
            Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
            Purpose::Server(_) => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        let refused = |source| PkiError::Refused { what: format!("the certificate {}", self.name), source };
        for name in &names.dns {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into().map_err(refused)?));
        }
        params.subject_alt_names.extend(names.ips.iter().copied().map(SanType::IpAddress));
        let pair = new_key(self.name)?;
        let certificate = params.signed_by(&pair, issuer).map_err(refused)?;
        drafts.push(private(key, pair.serialize_pem()));
        drafts.push(public(crt, certificate.pem()));
        Ok(())
    }

    /// Whether what is there can stay; if not, under which names the new one must be valid.
    fn judge(
        &self,
        crt_pem: Option<&str>,
        key_pem: Option<&str>,
        authority: &Authority,
        now: Timestamp,
    ) -> Verdict {
        let wanted = match self.purpose {
            Purpose::Client => ServingNames::default(),
            Purpose::Server(names) => names.clone(),
        };
        let Some(der) = crt_pem.and_then(|it| CertificateDer::from_pem_slice(it.as_bytes()).ok()) else {
            return Verdict::Make(wanted);
        };
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&der) else { return Verdict::Make(wanted) };
        let names = names_of(&parsed);
        let has_key =
            key_pem.and_then(|it| KeyPair::from_pem(it).ok()).is_some_and(|it| is_pair(&parsed, &it));
        let lasts = seconds_left(&parsed, now) > RENEW_BEFORE_DAYS * SECONDS_PER_DAY;
        if has_key && lasts && is_vouched_for(&parsed, authority) && names.contains(&wanted) {
            return Verdict::Keep;
        }
        // Other servers may use the same directory under other names: keep theirs.
        let mut all = wanted;
        for name in names.dns.iter().take(MAX_NAMES) {
            all.add_dns(name);
        }
        for ip in names.ips.into_iter().take(MAX_NAMES) {
            all.add_ip(ip);
        }
        Verdict::Make(all)
    }
}

enum Verdict {
    Keep,
    Make(ServingNames),
}

fn params(
    what: &str,
    common_name: &str,
    organization: Option<&str>,
    now: Timestamp,
    days: i64,
) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
    let today = now.to_zoned(TimeZone::UTC).date();
    // Valid since yesterday, for clients whose clocks are behind.
    let (year, month, day) = parts(today.saturating_sub(1.day()));
    params.not_before = rcgen::date_time_ymd(year, month, day);
    let (year, month, day) = parts(today.saturating_add(days.days()));
    params.not_after = rcgen::date_time_ymd(year, month, day);
    tracing::debug!(what, days, "a certificate is made");
    params
}

fn parts(date: Date) -> (i32, u8, u8) {
    let month = u8::try_from(date.month()).expect("a month must be from 1 to 12");
    let day = u8::try_from(date.day()).expect("a day must be from 1 to 31");
    (i32::from(date.year()), month, day)
}

fn seconds_left(certificate: &X509Certificate<'_>, now: Timestamp) -> i64 {
    certificate.validity().not_after.timestamp().saturating_sub(now.as_second())
}

fn is_pair(certificate: &X509Certificate<'_>, key: &KeyPair) -> bool {
    certificate.public_key().subject_public_key.data.as_ref() == key.der_bytes()
}

fn is_vouched_for(certificate: &X509Certificate<'_>, authority: &Authority) -> bool {
    let named = certificate.extensions().iter().find_map(|it| match it.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|it| it.0.to_vec()),
        _ => None,
    });
    named.is_some() && named == authority.key_identifier()
}

fn names_of(certificate: &X509Certificate<'_>) -> ServingNames {
    let mut names = ServingNames::default();
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return names };
    for name in &extension.value.general_names {
        match name {
            GeneralName::DNSName(name) => names.add_dns(name),
            GeneralName::IPAddress(bytes) => {
                let ip = <[u8; 4]>::try_from(*bytes)
                    .map(IpAddr::from)
                    .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
                if let Ok(ip) = ip {
                    names.add_ip(ip);
                }
            }
            _ => {}
        }
    }
    names
}
