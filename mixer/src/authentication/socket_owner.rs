//! Socket owners: which user of this machine is at the other end of a loopback connection, as the kernel says (`sock_diag(7)`).
//!
//! | bytes | of the request | of the answer |
//! |---|---|---|
//! | 0–15 | `nlmsghdr`: length, type `SOCK_DIAG_BY_FAMILY`, `NLM_F_REQUEST` | the same; type `NLMSG_ERROR` if there is no such socket |
//! | 16–19 | `inet_diag_req_v2`: family, protocol | `inet_diag_msg`: family, **state** |
//! | 20–71 | states, `inet_diag_sockid` | |
//! | 80–83, 84–87 | | **user**, **inode** |
//!
//! # Invariants
//!
//! - Asked for is the client's own socket: its source is the peer, its destination is the Mixer's end.
//! - The kernel calls a socket that nobody has open any more root's. So only one that is established and has an inode says whose it is.
//!
//! Not here: who is trusted ([`super::ConnectionEnds`]). An ADR compares this with `/proc/net/tcp` and with a Unix socket.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::ConnectionEnds;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const TCP: u8 = 6;
const ESTABLISHED: u8 = 1;
/// `INET_DIAG_NOCOOKIE`, twice: any socket with these ends.
const NO_COOKIE: [u8; 8] = [0xff; 8];
const REQUEST_LENGTH: u32 = 72;
/// The kernel answers in microseconds, or not at all.
const TIMEOUT_MS: i64 = 200;

/// The user that has the client's end of a connection open; `None` if nobody on this machine has.
///
/// # Errors
/// If the kernel cannot be asked.
pub(super) fn socket_owner(ends: ConnectionEnds) -> io::Result<Option<u32>> {
    let Some(request) = request(ends) else { return Ok(None) };
    let asked = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    setsockopt(&asked, sockopt::ReceiveTimeout, &TimeVal::new(0, TIMEOUT_MS * 1_000))?;
    sendto(asked.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 512];
    let length = recv(asked.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    Ok(owner_in(answer.get(..length).unwrap_or_default()))
}

/// The request for the client's socket; `None` where the ends are of two families.
fn request(ends: ConnectionEnds) -> Option<Vec<u8>> {
    let (source, destination) = (ends.peer.ip().to_canonical(), ends.local.ip().to_canonical());
    let family = match (source, destination) {
        (IpAddr::V4(_), IpAddr::V4(_)) => AddressFamily::Inet,
        (IpAddr::V6(_), IpAddr::V6(_)) => AddressFamily::Inet6,
        _ => return None,
    };
    let mut request = Vec::with_capacity(REQUEST_LENGTH as usize);
    request.extend(REQUEST_LENGTH.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([u8::try_from(family as i32).ok()?, TCP, 0, 0]);
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(ends.peer.port().to_be_bytes());
    request.extend(ends.local.port().to_be_bytes());
    request.extend(sixteen(source));
    request.extend(sixteen(destination));
    request.extend(0_u32.to_ne_bytes());
    request.extend(NO_COOKIE);
    Some(request)
}

fn sixteen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
    }
}

fn owner_in(answer: &[u8]) -> Option<u32> {
    let number = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let is_open = kind == SOCK_DIAG_BY_FAMILY && *answer.get(17)? == ESTABLISHED && number(84)? != 0;
    is_open.then(|| number(80))?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::Read;
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    fn connected(address: &str) -> Option<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind((address, 0)).ok()?;
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        Some((client, server))
    }

    fn owner(server: &TcpStream) -> Option<u32> {
        let ends = ConnectionEnds {
            peer: server.peer_addr().unwrap(),
            local: server.local_addr().unwrap(),
        };
        socket_owner(ends).unwrap()
    }

    #[test]
    fn the_kernel_says_whose_connection_it_is_over_both_families() {
        let me = nix::unistd::geteuid().as_raw();
        for address in ["127.0.0.1", "::1"] {
            let Some((_client, server)) = connected(address) else {
                assert_eq!(address, "::1", "a machine without IPv6 at most");
                continue;
            };
            assert_eq!(owner(&server), Some(me), "{address}");
        }
    }

    #[test]
    fn a_connection_that_its_client_has_closed_is_nobodys() {
        let (client, mut server) = connected("127.0.0.1").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0, "the end has arrived");
        assert_eq!(owner(&server), None, "half-closed");
        drop(client);
        assert_eq!(owner(&server), None, "gone");
    }
}
