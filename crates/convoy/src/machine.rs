//! What the machine calls itself, and how much it gives us.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The name of the machine.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The address that other machines most likely reach this one under; nothing is sent to find out.
pub fn outbound_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // A documentation address (RFC 5737): only the route is looked up.
    socket.connect(SocketAddr::from(([192, 0, 2, 1], 9))).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified()).then_some(address)
}

/// Lets this process open as many files as it may, as Go programs do: each connection is one. Returns how many.
pub fn raise_open_files() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // A limit of "none" comes with limits elsewhere; this many is enough for anybody.
    let wanted = maximum.unwrap_or(1 << 20);
    if current.is_some_and(|it| it < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(wanted)
}
