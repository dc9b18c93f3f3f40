//! The self-made keys and certificates of a server, from its start to its end.
//!
//! Responsible for: making them, having them renewed in time and whenever an authority was replaced, and handing what
//! comes of it to those who cannot read the files themselves: the administrator's kubeconfig, and the authorities that
//! are published in every namespace.
//! Deliberately not here: what is made and when (`server::pki`), and how TLS follows its files (`server::tls`).

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use server::{
    files::{self, Access},
    follow,
    kubeconfig::Kubeconfig,
    pki::{self, Pki, PkiError, Roots, ServingNames},
};
use store::SharedClock;
use tokio::sync::watch;

use crate::{failure::Failure, flags::ServeFlags, settings};

/// How often self-made certificates are looked at, changes or not; they are renewed a month before they expire.
const RENEW: Duration = Duration::from_secs(12 * 3600);

/// What was made for a server.
pub struct Certificates {
    folder: PathBuf,
    names: ServingNames,
    url: String,
    /// `--write-kubeconfig`
    kubeconfig_file: Option<PathBuf>,
    clock: SharedClock,
    made: Mutex<Made>,
    root_ca: watch::Sender<Arc<str>>,
}

struct Made {
    pki: Pki,
    /// What it was made from.
    roots: Roots,
    /// When; never, where something of it is to be done again.
    at: Option<Duration>,
}

/// Makes what is missing, if flags leave anything to be made; says from what, too.
pub async fn make(flags: &ServeFlags, clock: &SharedClock) -> Result<Option<(Pki, Roots)>, Failure> {
    if !settings::needs_pki(flags) {
        return Ok(None);
    }
    let (folder, names) = (settings::cert_dir(flags), settings::serving_names(&flags.serving));
    let now = clock.now();
    // Another server may hold the directory for a moment.
    let make = move || Ok((pki::ensure(&folder, &names, now)?, Roots::read(&folder)?));
    let made: Result<Result<_, PkiError>, _> = tokio::task::spawn_blocking(make).await;
    match made {
        Ok(made) => made.map(Some).map_err(|it| Failure::because(&it)),
        Err(_) => Err(Failure::failed("making keys and certificates ended unexpectedly")),
    }
}

impl Certificates {
    /// Takes over what was made for a server at this URL, and writes its kubeconfig.
    pub fn new(
        flags: &ServeFlags,
        (pki, roots): (Pki, Roots),
        url: &str,
        clock: &SharedClock,
    ) -> Result<Arc<Self>, Failure> {
        let certificates = Self {
            folder: settings::cert_dir(flags),
            names: settings::serving_names(&flags.serving),
            url: url.to_owned(),
            kubeconfig_file: flags.serving.write_kubeconfig.clone(),
            root_ca: watch::Sender::new(Arc::from(pki.authorities_for_clients.as_str())),
            made: Mutex::new(Made { pki, roots, at: Some(clock.monotonic()) }),
            clock: Arc::clone(clock),
        };
        certificates.write_kubeconfig()?;
        Ok(Arc::new(certificates))
    }

    /// By what clients recognise the server, now and from now on.
    pub fn root_ca(&self) -> watch::Receiver<Arc<str>> {
        self.root_ca.subscribe()
    }

    /// An administrator's kubeconfig, as of now.
    pub fn kubeconfig(&self) -> Result<String, Failure> {
        let read = |path: &Path| {
            fs::read(path).map_err(|it| Failure::failed(format!("cannot read {}: {it}", path.display())))
        };
        let pki = self.made.lock().pki.clone();
        let kubeconfig = Kubeconfig {
            server: &self.url,
            certificate_authority: pki.authorities_for_clients.as_bytes(),
            client_certificate: &read(&pki.admin_certificate)?,
            client_key: &read(&pki.admin_key)?,
        };
        Ok(kubeconfig.to_yaml())
    }

    /// Renews for ever: what is about to expire, and all that an authority signed which was replaced.
    pub async fn follow(self: Arc<Self>) {
        let clock = Arc::clone(&self.clock);
        follow::files("authorities and keys in --cert-dir", clock, move || {
            let certificates = Arc::clone(&self);
            let told = |it: Failure| format!("certificates could not be renewed: {it}");
            follow::aside(move || certificates.renew().map_err(told))
        })
        .await;
    }

    /// Says whether the authorities or the key of tokens have changed since the last time.
    fn renew(&self) -> Result<bool, Failure> {
        let roots = Roots::read(&self.folder).map_err(|it| Failure::because(&it))?;
        let now = self.clock.monotonic();
        let has_changed = {
            let made = self.made.lock();
            let has_changed = made.roots != roots;
            if !has_changed && made.at.is_some_and(|at| now.saturating_sub(at) < RENEW) {
                return Ok(false);
            }
            has_changed
        };
        let pki =
            pki::renew(&self.folder, &self.names, self.clock.now()).map_err(|it| Failure::because(&it))?;
        let trusted: Arc<str> = Arc::from(pki.authorities_for_clients.as_str());
        *self.made.lock() = Made { pki, roots, at: Some(now) };
        self.root_ca.send_if_modified(|before| {
            let is_new = *before != trusted;
            *before = trusted;
            is_new
        });
        self.write_kubeconfig().inspect_err(|_| self.made.lock().at = None)?;
        Ok(has_changed)
    }

    fn write_kubeconfig(&self) -> Result<(), Failure> {
        let Some(path) = &self.kubeconfig_file else { return Ok(()) };
        let text = self.kubeconfig()?;
        files::write(path, text.as_bytes(), Access::Private).map_err(|it| Failure::because(&it))
    }
}
