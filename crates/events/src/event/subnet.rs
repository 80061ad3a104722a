//! Addresses that a search asks for: one, or all that share a prefix.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::addresses::address;

/// All addresses with a prefix, written as `10.1.0.0/16`; a single one as `10.1.2.3`.
///
/// An IPv4 address that is written as an IPv6 one (`::ffff:10.1.2.3`) is the IPv4 address. The two
/// families have no address in common: `::/0` does not contain `10.1.2.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subnet {
    /// The bits after the prefix are 0.
    first: IpAddr,
    prefix: u8,
}

/// A text that is no address and no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("neither an address, such as 10.1.2.3 or 2001:db8::1, nor a prefix, such as 10.1.0.0/16")]
pub struct SubnetError;

impl Subnet {
    /// Returns the first address.
    #[must_use]
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// Returns the size of the prefix in bits.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Returns the subnet of an address with a prefix of at most `prefix` bits.
    pub(crate) fn around(address: IpAddr, prefix: u8) -> Self {
        let address = address.to_canonical();
        let size = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.min(size);
        let free = u32::from(size - prefix);
        let first = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(free).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(free).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        };
        Self { first, prefix }
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4()
            && Self::around(address, self.prefix).first == self.first
    }
}

impl From<IpAddr> for Subnet {
    fn from(address: IpAddr) -> Self {
        Self::around(address, 128)
    }
}

impl FromStr for Subnet {
    type Err = SubnetError;

    fn from_str(text: &str) -> Result<Self, SubnetError> {
        let text = text.trim_ascii();
        let Some((address, prefix)) = text.split_once('/') else {
            return address(text).map(Self::from).ok_or(SubnetError);
        };
        let address: IpAddr = address.parse().map_err(|_| SubnetError)?;
        let size = if address.is_ipv4() { 32 } else { 128 };
        let plain = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix: u8 = prefix.parse().map_err(|_| SubnetError)?;
        if !plain || prefix > size {
            return Err(SubnetError);
        }
        // A prefix of addresses that are all written IPv4 ones is one of IPv4.
        if address.is_ipv6() && address.to_canonical().is_ipv4() {
            let prefix = prefix.checked_sub(96).ok_or(SubnetError)?;
            return Ok(Self::around(address, prefix));
        }
        Ok(Self::around(address, prefix))
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = if self.first.is_ipv4() { 32 } else { 128 };
        if self.prefix == size {
            return self.first.fmt(formatter);
        }
        write!(formatter, "{}/{}", self.first, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_read_and_written() {
        for (text, written) in [
            ("10.1.2.3", "10.1.2.3"),
            (" 10.1.2.3/32 ", "10.1.2.3"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("10.1.2.3:80", "10.1.2.3"),
            ("[2001:DB8::1]:443", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("2001:db8:1:2:3::/48", "2001:db8:1::/48"),
            ("::/0", "::/0"),
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("::ffff:10.1.2.3/104", "10.0.0.0/8"),
        ] {
            let subnet: Subnet = text.parse().unwrap();
            assert_eq!(subnet.to_string(), written, "{text}");
            assert_eq!(written.parse(), Ok(subnet));
        }
        for text in [
            "",
            "x",
            "10.1.2",
            "10.1.2.3/33",
            "10.1.2.3/",
            "10.1.2.3/+8",
            "::/129",
            "/8",
            "::ffff:10.0.0.0/8",
        ] {
            assert_eq!(text.parse::<Subnet>(), Err(SubnetError), "{text}");
        }
    }

    #[test]
    fn a_subnet_contains_the_addresses_with_its_prefix() {
        let has = |subnet: &str, address: &str| {
            subnet.parse::<Subnet>().unwrap().contains(address.parse().unwrap())
        };
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.0"));
        assert!(has("10.0.0.0/8", "::ffff:10.1.1.1") && has("10.1.1.1", "::ffff:10.1.1.1"));
        assert!(has("192.0.2.128/25", "192.0.2.200") && !has("192.0.2.128/25", "192.0.2.1"));
        assert!(has("2001:db8::/32", "2001:db8:ffff::1") && !has("2001:db8::/32", "2001:db9::"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1"));
        assert!(has("::/0", "::1") && !has("::/0", "1.2.3.4"));
    }
}
