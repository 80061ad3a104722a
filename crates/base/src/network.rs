//! Which addresses and names are of the public Internet.
//!
//! Invariants: what is not known to be public is not; an address inside another (mapped, translated) is judged by what
//! it leads to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks of IPv4 that are not public (IANA, special-purpose address registry).
const NOT_PUBLIC_V4: [(Ipv4Addr, u32); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Among them 169.254.169.254, where clouds hand out credentials.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The same of IPv6, inside 2000::/3; nothing outside of that is public.
const NOT_PUBLIC_V6: [(Ipv6Addr, u32); 3] = [
    // Teredo among them, which leads to any IPv4 address.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Ends of names that are not of the public Internet (RFC 6761, RFC 6762, RFC 8375, RFC 9476).
const LOCAL_ENDS: [&str; 5] = [".local", ".localhost", ".internal", ".home.arpa", ".lan"];

/// Whether a name is not one of the public Internet: it has no dot, or the end of a local network.
#[must_use]
pub fn is_local_name(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    !host.contains('.') || LOCAL_ENDS.iter().any(|end| host.ends_with(end))
}

/// Whether an address is one of the public Internet.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let has = |(network, length): &(Ipv4Addr, u32)| {
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        u32::from(address) & mask == u32::from(*network)
    };
    !NOT_PUBLIC_V4.iter().any(has)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (a, b) {
        // Mapped.
        (0, 0) if (c, d, e, f) == (0, 0, 0, 0xffff) => embedded(g, h),
        // Translated to IPv4 (RFC 6052).
        (0x64, 0xff9b) if (c, d, e, f) == (0, 0, 0, 0) => embedded(g, h),
        // 6to4.
        (0x2002, _) => embedded(b, c),
        (0x2000..=0x3fff, _) => {
            let has = |(network, length): &(Ipv6Addr, u32)| {
                let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
                u128::from(address) & mask == u128::from(*network)
            };
            !NOT_PUBLIC_V6.iter().any(has)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_dot_or_with_the_end_of_a_local_network_is_local() {
        for name in ["db", "localhost", "db.prod.svc.cluster.LOCAL", "a.internal.", "nas.lan"] {
            assert!(is_local_name(name), "{name}");
        }
        for name in ["db.example.org", "local.example.org", "notlocal.org", "10.1.2.3"] {
            assert!(!is_local_name(name), "{name}");
        }
    }

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        for (address, expected) in [
            ("93.184.216.34", true),
            ("1.1.1.1", true),
            ("100.63.255.255", true),
            ("172.32.0.1", true),
            ("2606:2800:220:1:248:1893:25c8:1946", true),
            ("2001:4860:4860::8888", true),
            ("::ffff:1.1.1.1", true),
            ("64:ff9b::101:101", true),
            ("0.0.0.0", false),
            ("10.1.2.3", false),
            ("100.64.0.1", false),
            ("127.0.0.1", false),
            ("127.255.255.254", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.0.0.8", false),
            ("192.168.1.1", false),
            ("198.18.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::7f00:1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("64:ff9b::7f00:1", false),
            ("64:ff9b::a9fe:a9fe", false),
            ("64:ff9b:1::1", false),
            ("2002:7f00:1::", false),
            ("2002:101:101::", true),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("3fff::1", false),
            ("fc00::1", false),
            ("fd00:ec2::254", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
            ("100::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
        }
    }
}
