//! Which addresses are of the public internet. All others are refused: they are of this machine, of its network, or of a
//! cloud's own services, which trust whoever can reach them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses: `10.1.0.0/16`, or one of them alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    first: IpAddr,
    bits: u8,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Range, String> {
        let wrong = || format!("'{text}' is no address and no range of addresses, such as 127.0.0.1 or 10.1.0.0/16");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most { Err(wrong()) } else { Ok(Range { first, bits }) }
    }
}

impl Range {
    /// Whether an address lies in it.
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.first, plain(address)) {
            (IpAddr::V4(first), IpAddr::V4(address)) => begins_v4(address, first, self.bits),
            (IpAddr::V6(first), IpAddr::V6(address)) => begins_v6(address, first, self.bits),
            _ => false,
        }
    }
}

/// What an address is if it is none of the public internet. One that holds another (`::ffff:127.0.0.1`) is what that is.
pub fn not_public(address: IpAddr) -> Option<&'static str> {
    match plain(address) {
        IpAddr::V4(address) => not_public_v4(address),
        IpAddr::V6(address) => not_public_v6(address),
    }
}

/// The address that a packet to this one goes to.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

const V4: [(Ipv4Addr, u8, &str); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "of this machine"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "of a private network"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "of a provider's own network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "of this machine"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "of this link alone, where clouds answer with their keys"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "of a private network"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved for protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "of relays to another protocol"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "of a private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for measurements"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "of a group"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    // Clouds' own services at addresses that look public.
    if [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200)].contains(&address) {
        return Some("of a cloud's own services");
    }
    V4.iter().find(|(first, bits, _)| begins_v4(address, *first, *bits)).map(|(_, _, what)| *what)
}

/// Ranges within the one that the public internet is, that are none of it. Two of them lead to IPv4 addresses.
const V6: [(Ipv6Addr, u8, &str); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved for protocols"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "for documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "of relays to another protocol"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "for documentation"),
];

fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_loopback() || address.is_unspecified() {
        return Some("of this machine");
    }
    if !begins_v6(address, Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3) {
        return Some("none of the public internet");
    }
    V6.iter().find(|(first, bits, _)| begins_v6(address, *first, *bits)).map(|(_, _, what)| *what)
}

fn begins_v4(address: Ipv4Addr, first: Ipv4Addr, bits: u8) -> bool {
    let differ = address.to_bits() ^ first.to_bits();
    differ.checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
}

fn begins_v6(address: Ipv6Addr, first: Ipv6Addr, bits: u8) -> bool {
    let differ = address.to_bits() ^ first.to_bits();
    differ.checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0
}
