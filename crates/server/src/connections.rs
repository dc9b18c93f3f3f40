//! The open connections of a server: which of them do something, and which are to be told to go.
//!
//! Responsible for: counting requests per connection, finding those that are idle or dawdle over a request's
//! head, and telling connections to finish or to close.
//! Deliberately not here: sockets, TLS, HTTP (`listen`).
//!
//! There is no timer per connection and none per request: one sweep looks at all connections every few seconds,
//! and a request costs two relaxed additions on a cache line of its own connection.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    task::Context,
    time::Duration,
};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

/// What a connection has been told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Go on.
    Serve,
    /// Finish what has begun, take nothing new, close.
    Finish,
    /// Close now.
    Close,
}

/// One open connection, as the sweep sees it.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    order: AtomicU8,
    waker: AtomicWaker,
    in_flight: AtomicU32,
    // Requests begun, ever. Changes tell the sweep that the connection is used.
    begun: AtomicU64,
    // Reads that returned something, and how many there were when the last request ended: if they differ while
    // nothing is in flight, a part of a request's head has arrived.
    reads: AtomicU64,
    reads_at_end: AtomicU64,
    // HTTP/2: what arrives between requests is mostly the answer to a ping.
    is_framed: AtomicBool,
}

/// One request on a connection, until its answer has been handed over.
#[derive(Debug)]
pub struct InFlight(Arc<Connection>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let connection = &self.0;
        connection.reads_at_end.store(connection.reads.load(Ordering::Relaxed), Ordering::Relaxed);
        connection.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// A request has begun.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// What arrives between requests need not be the head of one.
    pub(crate) fn set_framed(&self) {
        self.is_framed.store(true, Ordering::Relaxed);
    }

    /// Whether a request is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// Whether there was a request, ever.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed) > 0
    }

    /// Whether it was told to finish.
    pub(crate) fn is_leaving(&self) -> bool {
        self.order.load(Ordering::Acquire) > 0
    }

    /// Some bytes have arrived.
    pub(crate) fn has_read(&self) {
        // Only the task of the connection writes this.
        self.reads.store(self.reads.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// What to do now; the task is woken when that changes.
    pub(crate) fn order(&self, cx: &Context<'_>) -> Order {
        self.waker.register(cx.waker());
        match self.order.load(Ordering::Acquire) {
            0 => Order::Serve,
            1 => Order::Finish,
            _ => Order::Close,
        }
    }

    pub(crate) fn tell(&self, order: Order) {
        let number = match order {
            Order::Serve => 0,
            Order::Finish => 1,
            Order::Close => 2,
        };
        if self.order.fetch_max(number, Ordering::AcqRel) < number {
            self.waker.wake();
        }
    }
}

/// All open connections of one listener.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Watched>,
    // Given to connections that arrive after it was given to all.
    standing: Option<Order>,
}

#[derive(Debug)]
struct Watched {
    connection: Arc<Connection>,
    begun: u64,
    quiet_sweeps: u32,
    // Sweeps since a head was found incomplete, or since the connection opened without one.
    head_sweeps: u32,
}

/// Takes the connection off the table when dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) connection: Arc<Connection>,
    id: u64,
    table: Arc<Connections>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.table.table.lock().open.remove(&self.id);
    }
}

impl Connections {
    /// A new connection.
    pub(crate) fn register(self: &Arc<Self>) -> Registered {
        let connection = Arc::new(Connection::default());
        let mut table = self.table.lock();
        if let Some(order) = table.standing {
            connection.tell(order);
        }
        let id = table.next;
        table.next += 1;
        let watched =
            Watched { connection: Arc::clone(&connection), begun: 0, quiet_sweeps: 0, head_sweeps: 0 };
        table.open.insert(id, watched);
        drop(table);
        Registered { connection, id, table: Arc::clone(self) }
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().open.len()
    }

    /// Tells all of them, and all that come.
    pub(crate) fn tell_all(&self, order: Order) {
        let mut table = self.table.lock();
        table.standing = table.standing.max(Some(order));
        let open: Vec<_> = table.open.values().map(|it| Arc::clone(&it.connection)).collect();
        drop(table);
        for connection in open {
            connection.tell(order);
        }
    }

    /// Looks at all connections; call it once per `patience.sweep`.
    pub(crate) fn sweep(&self, patience: &Patience) {
        let mut table = self.table.lock();
        let orders: Vec<_> = table
            .open
            .values_mut()
            .filter_map(|it| it.judge(patience).map(|order| (Arc::clone(&it.connection), order)))
            .collect();
        drop(table);
        for (connection, order) in orders {
            connection.tell(order);
        }
    }
}

/// How long a connection may be quiet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) sweep: Duration,
    /// Sweeps until a head must be complete, the first one of a connection included.
    head: u32,
    /// Sweeps until an idle connection is closed.
    idle: u32,
}

impl Patience {
    /// Looks often enough to be at most a quarter late.
    pub(crate) fn new(head: Duration, idle: Duration) -> Self {
        let sweep = (head.min(idle) / 4).clamp(Duration::from_millis(5), Duration::from_secs(5));
        let sweeps = |time: Duration| {
            u32::try_from(time.as_nanos().div_ceil(sweep.as_nanos())).unwrap_or(u32::MAX).max(2)
        };
        Self { sweep, head: sweeps(head), idle: sweeps(idle) }
    }
}

impl Watched {
    fn judge(&mut self, patience: &Patience) -> Option<Order> {
        let connection = &self.connection;
        let begun = connection.begun.load(Ordering::Relaxed);
        if begun != self.begun || connection.in_flight.load(Ordering::Relaxed) > 0 {
            self.begun = begun;
            self.quiet_sweeps = 0;
            self.head_sweeps = 0;
            return None;
        }
        self.quiet_sweeps = self.quiet_sweeps.saturating_add(1);
        let half_a_head = !connection.is_framed.load(Ordering::Relaxed)
            && connection.reads.load(Ordering::Relaxed) != connection.reads_at_end.load(Ordering::Relaxed);
        self.head_sweeps = if begun == 0 || half_a_head { self.head_sweeps.saturating_add(1) } else { 0 };
        if self.head_sweeps > patience.head {
            return Some(Order::Close);
        }
        match self.quiet_sweeps {
            quiet if quiet > patience.idle.saturating_add(patience.head) => Some(Order::Close),
            quiet if quiet > patience.idle => Some(Order::Finish),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn patience() -> Patience {
        Patience { sweep: Duration::from_secs(1), head: 3, idle: 10 }
    }

    fn order(registered: &Registered) -> Order {
        registered.connection.order(&Context::from_waker(Waker::noop()))
    }

    fn sweep(connections: &Connections, times: u32) {
        for _ in 0..times {
            connections.sweep(&patience());
        }
    }

    #[test]
    fn a_connection_that_never_asks_is_closed_early() {
        let connections = Arc::new(Connections::default());
        let registered = connections.register();
        sweep(&connections, 3);
        assert_eq!(order(&registered), Order::Serve);
        sweep(&connections, 1);
        assert_eq!(order(&registered), Order::Close);
        drop(registered);
        assert_eq!(connections.len(), 0);
    }

    #[test]
    fn an_idle_connection_is_asked_to_finish_and_a_busy_one_is_left_alone() {
        let connections = Arc::new(Connections::default());
        let (idle, busy) = (connections.register(), connections.register());
        drop(idle.connection.begin());
        let in_flight = busy.connection.begin();
        sweep(&connections, 11);
        assert_eq!((order(&idle), order(&busy)), (Order::Serve, Order::Serve));
        sweep(&connections, 1);
        assert_eq!((order(&idle), order(&busy)), (Order::Finish, Order::Serve));
        sweep(&connections, 100);
        assert_eq!((order(&idle), order(&busy)), (Order::Close, Order::Serve));
        drop(in_flight);
    }

    #[test]
    fn half_a_head_on_a_used_connection_is_not_waited_for() {
        let connections = Arc::new(Connections::default());
        let registered = connections.register();
        registered.connection.has_read();
        drop(registered.connection.begin());
        sweep(&connections, 2);
        registered.connection.has_read();
        sweep(&connections, 3);
        assert_eq!(order(&registered), Order::Serve);
        sweep(&connections, 1);
        assert_eq!(order(&registered), Order::Close);
    }

    /// The answers to pings were taken for half a head: idle HTTP/2 connections were cut off after a minute, without a word.
    #[test]
    fn answers_to_pings_are_no_half_head_and_an_idle_connection_is_asked_to_finish() {
        let connections = Arc::new(Connections::default());
        let registered = connections.register();
        registered.connection.set_framed();
        drop(registered.connection.begin());
        for _ in 0..11 {
            registered.connection.has_read();
            sweep(&connections, 1);
            assert_eq!(order(&registered), Order::Serve);
        }
        sweep(&connections, 1);
        assert_eq!(order(&registered), Order::Finish);
    }

    #[test]
    fn an_order_to_all_reaches_those_that_come_later() {
        let connections = Arc::new(Connections::default());
        let before = connections.register();
        connections.tell_all(Order::Finish);
        let after = connections.register();
        assert_eq!((order(&before), order(&after)), (Order::Finish, Order::Finish));
    }
}
