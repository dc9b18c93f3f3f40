//! One authority, and one certificate that it vouches for: kept if usable, else made.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
};

use super::{
    Founding, Origin, PkiError, ServingNames, new_key, parse_key, private, public, read_optional, unusable,
};
use crate::files::NewFile;

/// Certificates are renewed when less than this is left.
const RENEW_BEFORE_DAYS: i64 = 30;
const LEAF_DAYS: i64 = 365;
const AUTHORITY_DAYS: i64 = 3650;
/// Authorities are not renewed: their owner is reminded this long before, so that no certificate outlives them.
const REMIND_BEFORE_DAYS: i64 = LEAF_DAYS;
const SECONDS_PER_DAY: i64 = 86_400;
/// Servers that share a directory add their names to one certificate; more than this is a mistake.
const MAX_NAMES: usize = 200;

/// Something that vouches for certificates, if its key is here.
pub(super) struct Authority {
    /// Everything in the file.
    pub(super) pem: String,
    /// The key identifiers of all certificates in the file, and that of the one that signs.
    key_identifiers: Vec<Vec<u8>>,
    signing: Option<Vec<u8>>,
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
        founding: Founding,
        drafts: &mut Vec<NewFile>,
    ) -> Result<Self, PkiError> {
        let (crt, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        match (read_optional(&crt)?, read_optional(&key)?) {
            (Some(pem), key_pem) => Self::load(name, &crt, &pem, &key, key_pem.as_deref(), now),
            (None, key_pem) => {
                founding.may_make(&crt)?;
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
                let pem = certificate.pem();
                drafts.push(public(crt, pem.clone()));
                let (_, parsed) = x509_parser::parse_x509_certificate(certificate.der())
                    .expect("a certificate that was just made must be readable");
                let signing = key_identifier(&parsed);
                let key_identifiers = signing.iter().cloned().collect();
                Ok(Self { pem, key_identifiers, signing, issuer: Some(Issuer::new(params, pair)), name })
            }
        }
    }

    /// All certificates of a file are trusted. The first one that belongs to the key and has not expired signs.
    fn load(
        name: &'static str,
        path: &Path,
        pem: &str,
        key_path: &Path,
        key_pem: Option<&str>,
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let all = all.ok().filter(|it| !it.is_empty());
        let all = all.ok_or_else(|| unusable(path, "does not hold a PEM certificate"))?;
        let parsed: Result<Vec<_>, _> =
            all.iter().map(|it| x509_parser::parse_x509_certificate(it)).collect();
        let parsed = parsed.map_err(|_| unusable(path, "holds a certificate that cannot be read"))?;
        let authorities: Vec<_> =
            all.iter().zip(parsed).map(|(der, (_, it))| (der, it)).filter(|(_, it)| it.is_ca()).collect();
        if authorities.is_empty() {
            return Err(unusable(path, "is not the certificate of an authority"));
        }
        let pair = key_pem.map(|it| parse_key(key_path, it)).transpose()?;
        let belongs = |it: &X509Certificate<'_>| pair.as_ref().is_none_or(|pair| is_pair(it, pair));
        if !authorities.iter().any(|(_, it)| belongs(it)) {
            return Err(unusable(key_path, format!("is not the key of {}", path.display())));
        }
        let signing = authorities.iter().find(|(_, it)| belongs(it) && seconds_left(it, now) > 0);
        let (der, certificate) =
            signing.ok_or_else(|| unusable(path, "is the certificate of an authority that has expired"))?;
        if seconds_left(certificate, now) < REMIND_BEFORE_DAYS * SECONDS_PER_DAY {
            let until = certificate.validity().not_after;
            tracing::warn!(path = %path.display(), %until, "an authority expires within a year; replace it as docs/high-availability.md says");
        }
        let refused = |source| PkiError::Refused { what: format!("the authority {name}"), source };
        let issuer = pair.map(|it| Issuer::from_ca_cert_der(der, it)).transpose().map_err(refused)?;
        let key_identifiers = authorities.iter().filter_map(|(_, it)| key_identifier(it)).collect();
        let signing = key_identifier(certificate);
        Ok(Self { pem: pem.to_owned(), key_identifiers, signing, issuer, name })
    }

    /// Whether any of its certificates vouches for this one.
    fn vouches_for(&self, certificate: &X509Certificate<'_>) -> bool {
        named_authority(certificate).is_some_and(|it| self.key_identifiers.contains(&it))
    }

    /// Whether it would vouch for this one again: with its key here, that is what the key's certificate vouches for.
    fn signs(&self, certificate: &X509Certificate<'_>) -> bool {
        match &self.issuer {
            None => self.vouches_for(certificate),
            Some(_) => self.signing.is_some() && named_authority(certificate) == self.signing,
        }
    }
}

impl Leaf<'_> {
    /// Makes the certificate and its key, unless there are some; renews those that were made here. Says who made them.
    pub(super) fn ensure(
        &self,
        folder: &Path,
        authority: &Authority,
        now: Timestamp,
        drafts: &mut Vec<NewFile>,
    ) -> Result<Kept, PkiError> {
        let (crt, key) =
            (folder.join(format!("{}.crt", self.name)), folder.join(format!("{}.key", self.name)));
        let there = Pair::read(&crt, &key)?;
        let names = match self.judge(there.as_ref(), authority, now)? {
            Verdict::Keep(kept) => return Ok(kept),
            Verdict::Make(names) => names,
        };
        let Some(issuer) = &authority.issuer else {
            let missing = format!("must be made anew, but {}.key is not there", authority.name);
            return Err(unusable(&crt, missing));
        };
        let mut params = params(self.name, self.common_name, self.organization, now, LEAF_DAYS);
        params.use_authority_key_identifier_extension = true;
        params.custom_extensions = vec![mark()];
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
        let origin = Origin { is_made_here: true, is_vouched_for: true };
        Ok(Kept { origin, pem_to_trust: None })
    }

    /// Whether what is there can stay; if not, under which names the new one must be valid.
    fn judge(
        &self,
        there: Option<&Pair>,
        authority: &Authority,
        now: Timestamp,
    ) -> Result<Verdict, PkiError> {
        let wanted = match self.purpose {
            Purpose::Client => ServingNames::default(),
            Purpose::Server(names) => names.clone(),
        };
        let Some(there) = there else { return Ok(Verdict::Make(wanted)) };
        let parsed = there.parse()?;
        let is_vouched_for = authority.vouches_for(&parsed);
        let keep = |is_made_here| {
            let pem_to_trust = (!is_vouched_for).then(|| there.pem.clone());
            Verdict::Keep(Kept { origin: Origin { is_made_here, is_vouched_for }, pem_to_trust })
        };
        let lasts = seconds_left(&parsed, now) > RENEW_BEFORE_DAYS * SECONDS_PER_DAY;
        if !self.is_made_here(&parsed) {
            if !lasts {
                let until = parsed.validity().not_after;
                tracing::warn!(path = %there.path.display(), %until, "a certificate that was brought along is not renewed by this server");
            }
            return Ok(keep(false));
        }
        let names = names_of(&parsed);
        if lasts && authority.signs(&parsed) && names.contains(&wanted) {
            return Ok(keep(true));
        }
        // Other servers may use the same directory under other names: keep theirs.
        let mut all = wanted;
        for name in names.dns.iter().take(MAX_NAMES) {
            all.add_dns(name);
        }
        for ip in names.ips.into_iter().take(MAX_NAMES) {
            all.add_ip(ip);
        }
        Ok(Verdict::Make(all))
    }

    /// Whether a server like this one made the certificate: it has the mark, or is exactly what releases made that set no
    /// mark. Whatever somebody else brought along is theirs to renew.
    fn is_made_here(&self, certificate: &X509Certificate<'_>) -> bool {
        let is_marked = certificate.extensions().iter().any(
            |it| matches!(it.parsed_extension(), ParsedExtension::NsCertComment(comment) if *comment == MARK),
        );
        if is_marked {
            return true;
        }
        let subject = match self.organization {
            None => format!("CN={}", self.common_name),
            Some(organization) => format!("O={organization}, CN={}", self.common_name),
        };
        let validity = certificate.validity();
        let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        // Other tools begin and end at the second they ran, these began and ended at midnight.
        certificate.subject().to_string() == subject
            && from % SECONDS_PER_DAY == 0
            && until.saturating_sub(from) == (LEAF_DAYS + 1) * SECONDS_PER_DAY
    }
}

/// A certificate and the key that belongs to it.
struct Pair {
    path: PathBuf,
    /// The certificate and what came along with it.
    pem: String,
    certificate: CertificateDer<'static>,
}

impl Pair {
    /// What is there, if anything. Half a pair is an error: whoever brought it would not expect to lose it.
    fn read(crt: &Path, key: &Path) -> Result<Option<Self>, PkiError> {
        let unpaired = |path: &Path, problem: String| PkiError::Unpaired { path: path.to_owned(), problem };
        let (crt_pem, key_pem) = match (read_optional(crt)?, read_optional(key)?) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(unpaired(crt, format!("is there, but {} is not", key.display()))),
            (None, Some(_)) => return Err(unpaired(key, format!("is there, but {} is not", crt.display()))),
            (Some(crt_pem), Some(key_pem)) => (crt_pem, key_pem),
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(crt_pem.as_bytes()).collect();
        let chain = chain.ok().filter(|it| !it.is_empty());
        let chain = chain.ok_or_else(|| unpaired(crt, "does not hold a PEM certificate".to_owned()))?;
        let private = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|_| unpaired(key, "does not hold a PEM private key".to_owned()))?;
        let certificate = chain[0].clone();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        match CertifiedKey::from_der(chain, private, &provider) {
            Ok(_) => Ok(Some(Self { path: crt.to_owned(), pem: crt_pem, certificate })),
            Err(rustls::Error::InconsistentKeys(_)) => {
                Err(unpaired(key, format!("is not the key of {}", crt.display())))
            }
            Err(error) => Err(unpaired(key, format!("cannot be used with {}: {error}", crt.display()))),
        }
    }

    fn parse(&self) -> Result<X509Certificate<'_>, PkiError> {
        let parsed = x509_parser::parse_x509_certificate(&self.certificate);
        let problem = || "holds a certificate that cannot be read".to_owned();
        parsed
            .map(|(_, it)| it)
            .map_err(|_| PkiError::Unpaired { path: self.path.clone(), problem: problem() })
    }
}

/// A certificate that is there.
pub(super) struct Kept {
    pub(super) origin: Origin,
    /// What clients must trust besides the authorities, where those do not vouch for it.
    pub(super) pem_to_trust: Option<String>,
}

enum Verdict {
    Keep(Kept),
    Make(ServingNames),
}

/// A comment (Netscape's, which every tool shows) by which a certificate that was made here is recognised.
const MARK: &str = "made by convoy";
const NETSCAPE_COMMENT: &[u64] = &[2, 16, 840, 1, 113_730, 1, 13];

fn mark() -> CustomExtension {
    /// ASN.1's IA5String.
    const TAG: u8 = 0x16;
    let length = u8::try_from(MARK.len()).expect("the mark must be short");
    let mut content = vec![TAG, length];
    content.extend(MARK.as_bytes());
    CustomExtension::from_oid_content(NETSCAPE_COMMENT, content)
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

fn key_identifier(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|it| match it.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    })
}

/// The key identifier of the authority that a certificate says it comes from.
fn named_authority(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|it| match it.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|it| it.0.to_vec()),
        _ => None,
    })
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
