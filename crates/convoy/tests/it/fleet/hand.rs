//! What `convoy controllers` and `convoy migrate --local` run beside a cluster, in this process: trigger and migrator with
//! the engine that has nothing but the API.

use std::sync::Arc;

use controllers::{
    Selection, Setup,
    migration::{
        api::{ApiEngine, Endpoint, Reach, Settings},
        engine::{Agreement, Batch, Engine, Look, Task, Trouble},
    },
};
use futures_util::future::{BoxFuture, FutureExt};
use meta::GroupResource;
use parking_lot::Mutex;
use store::SystemClock;

/// The controllers that can work from outside.
const OUTSIDE: [&str; 2] = ["storage-version-migrator", "storage-version-trigger"];

/// Controllers at work; they end where they stand when this is dropped.
pub struct Hand {
    /// Migrations are made, too.
    pub has_trigger: bool,
    answers: Arc<Mutex<Vec<Answer>>>,
    task: tokio::task::JoinHandle<()>,
}

/// What was asked of a server, and the code of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub method: String,
    pub path: String,
    pub code: u16,
}

/// Of a list of controllers those that go outside, and those that stay.
pub fn split(controllers: &str) -> (String, String) {
    let (out, stay): (Vec<&str>, Vec<&str>) = controllers.split(',').partition(|it| OUTSIDE.contains(it));
    (out.join(","), stay.join(","))
}

/// Of which resources the trigger sees to it by itself that they are migrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// Of all, as it should.
    Everything,
    /// Of those that tests define. Nothing is known of the others at first, so dozens of migrations would be made that no
    /// story is about.
    Defined,
}

impl Hand {
    /// Beside a server that is known to be the only one.
    pub fn beside(client: &kube::Client, controllers: &str, care: Care) -> Self {
        Self::among(std::slice::from_ref(client), Reach::EveryServer, controllers, care)
    }

    /// Beside these. The first is asked for everything but the objects.
    pub fn among(clients: &[kube::Client], reach: Reach, controllers: &str, care: Care) -> Self {
        let answers: Arc<Mutex<Vec<Answer>>> = Arc::default();
        let clients: Vec<_> = clients.iter().map(|it| noted(it.clone(), &answers)).collect();
        let endpoints = clients.iter().enumerate();
        let endpoints =
            endpoints.map(|(n, client)| Endpoint { name: format!("server-{n}"), client: client.clone() });
        let engine = ApiEngine::new(endpoints.collect(), reach, Settings::default());
        let clock = SystemClock::shared();
        let mut setup = Setup::new(Arc::new(move || clock.now()));
        setup.selection = controllers.parse::<Selection>().unwrap();
        setup.engine = Some(match care {
            Care::Everything => Arc::new(engine),
            Care::Defined => Arc::new(Narrow(engine)),
        });
        let task = tokio::spawn(controllers::run(clients[0].clone(), setup, std::future::pending()));
        Self { has_trigger: controllers.contains("trigger"), answers, task }
    }

    /// What it asked so far.
    pub fn answers(&self) -> Vec<Answer> {
        self.answers.lock().clone()
    }

    /// What it asked about objects of a resource so far.
    pub fn answers_about(&self, resource: &str) -> Vec<Answer> {
        let is_about = |it: &Answer| it.path.split('/').any(|it| it == resource);
        self.answers().into_iter().filter(is_about).collect()
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The same client, with an eye on it.
fn noted(client: kube::Client, answers: &Arc<Mutex<Vec<Answer>>>) -> kube::Client {
    let answers = Arc::clone(answers);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, answers) = (client.clone(), Arc::clone(&answers));
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        async move {
            let response = client.send(request).await?;
            answers.lock().push(Answer { method, path, code: response.status().as_u16() });
            Ok::<_, kube::Error>(response)
        }
    });
    kube::Client::new(service, "default")
}

/// The engine, with an eye only for what tests define.
struct Narrow(ApiEngine);

impl Engine for Narrow {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn agreement<'a>(&'a self, resource: &'a GroupResource) -> BoxFuture<'a, Result<Agreement, Trouble>> {
        self.0.agreement(resource)
    }

    fn rewrite<'a>(&'a self, task: &'a Task, position: &'a str) -> BoxFuture<'a, Result<Batch, Trouble>> {
        self.0.rewrite(task, position)
    }

    fn verify<'a>(&'a self, task: &'a Task, position: &'a str) -> BoxFuture<'a, Result<Look, Trouble>> {
        self.0.verify(task, position)
    }

    fn resources(&self) -> BoxFuture<'_, Result<Vec<GroupResource>, Trouble>> {
        let is_defined = |it: &GroupResource| &*it.group == "example.com";
        async move { Ok(self.0.resources().await?.into_iter().filter(is_defined).collect()) }.boxed()
    }

    fn written<'a>(&'a self, resource: &'a GroupResource) -> BoxFuture<'a, Vec<String>> {
        self.0.written(resource)
    }

    fn hash<'a>(&'a self, resource: &'a GroupResource, version: &'a str) -> BoxFuture<'a, Option<String>> {
        self.0.hash(resource, version)
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        self.0.changed()
    }
}
