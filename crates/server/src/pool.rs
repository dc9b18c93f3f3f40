//! Where long computations run: validating, patching, transcoding and rendering what is large.
//!
//! The threads that serve connections also renew leases and answer `/livez`. A request that computes for seconds must not
//! take one of them, let alone all. So whatever is large runs in a [`Ticket`]: each of its steps is taken while the
//! thread has handed its other work to another one, and only so many of them at a time.
//!
//! Responsible for: how many compute at a time, how many may wait, and how much of both one user has.
//! Deliberately not here: what is large (`api`), and how many requests a user may have at all (`inflight`).

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    thread::available_parallelism,
};

use futures_util::{Stream, StreamExt, stream};
use meta::{RetryAfter, Status};
use parking_lot::Mutex;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
};

use crate::{
    inflight,
    payer::{Part, Payer},
};

/// What is smaller than this is worked on where it is: that takes less time than handing it over.
pub(crate) const LARGE: usize = 64 << 10;

/// Large requests that may be worked on or wait, of all users; one of them has a part.
pub(crate) const MAX_LARGE: usize = 64;

/// The pool of one server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    /// One permit for each that computes now.
    places: Arc<Semaphore>,
    /// How many of them one user may have.
    share: usize,
    users: Mutex<Users>,
}

#[derive(Default)]
struct Users {
    n_all: usize,
    by_name: HashMap<Arc<str>, OfUser>,
}

struct OfUser {
    /// Those that count.
    n: usize,
    n_tickets: usize,
    places: Arc<Semaphore>,
}

impl Pool {
    /// As many places as there are processors, and half of them for one user.
    pub(crate) fn new() -> Self {
        let places = available_parallelism().map_or(2, usize::from).max(2);
        Self::with_places(places)
    }

    fn with_places(places: usize) -> Self {
        let share = (places / 2).max(1);
        Self(Arc::new(Inner { places: Arc::new(Semaphore::new(places)), share, users: Mutex::default() }))
    }

    /// Lets a large request in; 429 if there are too many already. Operators always get in.
    pub(crate) fn enter(&self, payer: &Payer) -> Result<Ticket, Status> {
        let mut users = self.0.users.lock();
        let has_all = |(name, part): (&Arc<str>, Part)| {
            users.by_name.get(name).is_some_and(|it| it.n >= part.of(MAX_LARGE))
        };
        if !payer.is_operator() && (users.n_all >= MAX_LARGE || payer.parts().any(has_all)) {
            return Err(Status::too_many_requests(inflight::REFUSAL, RetryAfter::not_begun(1)));
        }
        Ok(self.admit(&mut users, payer, true))
    }

    /// The same for what has been done and only has to be told: it is never refused. It does not count either: it may have
    /// to wait for its client, and would keep others out meanwhile.
    pub(crate) fn enter_anyway(&self, payer: &Payer) -> Ticket {
        self.admit(&mut self.0.users.lock(), payer, false)
    }

    fn admit(&self, users: &mut Users, payer: &Payer, is_counted: bool) -> Ticket {
        let share = self.0.share;
        let new = || OfUser { n: 0, n_tickets: 0, places: Arc::new(Semaphore::new(share)) };
        for (name, _) in payer.parts() {
            let own = users.by_name.entry(Arc::clone(name)).or_insert_with(new);
            own.n_tickets += 1;
            own.n += usize::from(is_counted);
        }
        users.n_all += usize::from(is_counted);
        let own = users.by_name.entry(Arc::clone(payer.widest())).or_insert_with(new);
        Ticket { pool: self.clone(), payer: payer.clone(), own: Arc::clone(&own.places), is_counted }
    }
}

/// One large request.
pub(crate) struct Ticket {
    pool: Pool,
    payer: Payer,
    own: Arc<Semaphore>,
    is_counted: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut users = self.pool.0.users.lock();
        let n_counted = usize::from(self.is_counted);
        users.n_all -= n_counted;
        for (name, _) in self.payer.parts() {
            if let Some(own) = users.by_name.get_mut(name) {
                own.n -= n_counted;
                own.n_tickets -= 1;
                if own.n_tickets == 0 {
                    users.by_name.remove(name);
                }
            }
        }
    }
}

impl Ticket {
    /// Runs `work` to its end. Whenever it can go on it takes a place, the user's own share first, and gives it back when it
    /// has to wait for something: who waits for a store or a webhook keeps nobody from computing.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            // Neither is ever closed.
            let own = self.own.acquire().await;
            let place = self.pool.0.places.acquire().await;
            let polled = poll_fn(|cx| Poll::Ready(apart(|| work.as_mut().poll(cx)))).await;
            drop((own, place));
            match polled {
                Poll::Ready(done) => return done,
                Poll::Pending => woken().await,
            }
        }
    }

    /// A stream each of whose items is made as [`Ticket::run`] does it. While nobody asks for the next one it keeps no place.
    pub(crate) fn stream<T>(
        self,
        items: impl Stream<Item = T> + Send + 'static,
    ) -> impl Stream<Item = T> + Send + 'static
    where
        T: Send + 'static,
    {
        stream::unfold((self, Box::pin(items)), |(ticket, mut items)| async move {
            let item = ticket.run(items.next()).await?;
            Some((item, (ticket, items)))
        })
    }
}

/// Computes while somebody else does what this thread would have to do.
pub(crate) fn apart<T>(compute: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|it| it.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(compute),
        // There is nobody else.
        _ => compute(),
    }
}

/// Ends when this task is woken by whatever it waits for.
async fn woken() {
    let mut is_first = true;
    poll_fn(|_| match std::mem::take(&mut is_first) {
        true => Poll::Pending,
        false => Poll::Ready(()),
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Barrier,
            atomic::{AtomicBool, AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use access::User;

    use super::*;

    fn user(name: &str) -> Payer {
        Payer::named(name)
    }

    #[tokio::test]
    async fn each_user_and_all_together_have_a_bound_and_operators_get_in() {
        let pool = Pool::with_places(4);
        let mut held: Vec<Ticket> = Vec::new();
        for n in 0..4 {
            let name = format!("u{n}");
            held.extend((0..MAX_LARGE / 4).map(|_| pool.enter(&user(&name)).ok().unwrap()));
            assert_eq!(pool.enter(&user(&name)).err().unwrap().code, 429);
        }
        assert_eq!(pool.enter(&user("another")).err().unwrap().code, 429);
        let operator = User { groups: vec!["system:masters".to_owned()], ..User::named("admin") };
        assert!(pool.enter(&Payer::of(&operator)).is_ok());
        drop(held);
        assert!(pool.enter(&user("u0")).is_ok());
        assert!(pool.0.users.lock().by_name.is_empty());
    }

    /// Answers that are made while they are sent last as long as their clients like.
    #[tokio::test]
    async fn answers_that_are_sent_keep_nobody_out() {
        let pool = Pool::with_places(2);
        let sent: Vec<Ticket> = (0..2 * MAX_LARGE).map(|_| pool.enter_anyway(&user("slow"))).collect();
        assert!(pool.enter(&user("slow")).is_ok() && pool.enter(&user("another")).is_ok());
        drop(sent);
        assert!(pool.0.users.lock().by_name.is_empty());
    }

    /// Whoever may make ServiceAccounts made four of them, and had all places.
    #[tokio::test]
    async fn the_accounts_of_one_namespace_have_half_together() {
        let pool = Pool::with_places(4);
        let account = |n: usize| user(&format!("system:serviceaccount:dev:x{}", n % 4));
        let held: Vec<Ticket> = (0..MAX_LARGE / 2).map(|n| pool.enter(&account(n)).ok().unwrap()).collect();
        assert_eq!(pool.enter(&user("system:serviceaccount:dev:x5")).err().unwrap().code, 429);
        assert!(pool.enter(&user("system:serviceaccount:prod:x0")).is_ok());
        assert!(held.iter().all(|it| Arc::ptr_eq(&it.own, &held[0].own)), "they must compute on one share");
        drop(held);
        assert!(pool.0.users.lock().by_name.is_empty());
    }

    /// With every thread of the runtime computing, what has to be done in time is still done.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn computing_takes_no_thread_of_the_runtime() {
        let pool = Pool::with_places(8);
        let (begun, is_over) = (Arc::new(Barrier::new(5)), Arc::new(AtomicBool::new(false)));
        for n in 0..4 {
            let (pool, begun, is_over) = (pool.clone(), Arc::clone(&begun), Arc::clone(&is_over));
            tokio::spawn(async move {
                let ticket = pool.enter(&user(&format!("u{n}"))).ok().unwrap();
                ticket
                    .run(async {
                        begun.wait();
                        while !is_over.load(Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    })
                    .await;
            });
        }
        // Four compute on a runtime of two threads, and stay at it until a task of that runtime ends them.
        tokio::task::spawn_blocking(move || begun.wait()).await.unwrap();
        let ender = Arc::clone(&is_over);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            ender.store(true, Ordering::Relaxed);
        })
        .await
        .unwrap();
        assert!(is_over.load(Ordering::Relaxed));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_user_computes_on_half_of_the_places_at_most() {
        let pool = Pool::with_places(4);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..12)
            .map(|_| {
                let (ticket, now, most) =
                    (pool.enter(&user("one")).ok().unwrap(), Arc::clone(&now), Arc::clone(&most));
                tokio::spawn(async move {
                    ticket
                        .run(async {
                            for _ in 0..20 {
                                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                                std::thread::sleep(Duration::from_micros(200));
                                now.fetch_sub(1, Ordering::SeqCst);
                                tokio::task::yield_now().await;
                            }
                        })
                        .await;
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(most.load(Ordering::SeqCst) <= 2, "{most:?}");
    }
}
