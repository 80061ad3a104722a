//! Settings for requests from browsers: host names and origins.

use super::value::Value;

/// Host names by which clients may address the server, in addition to those of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts(pub(crate) Vec<String>);

impl Value for Hosts {
    const EXPECTED: &'static str = "host names without a port, such as files.example.com,10.0.0.7";

    fn parse(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(host).collect::<Result<_, _>>().map(Self)
    }
}

fn host(name: &str) -> Result<String, String> {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let address = bare.parse::<std::net::IpAddr>().is_ok();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if address || (name.len() <= 253 && name.chars().all(plain)) {
        return Ok(bare.to_ascii_lowercase());
    }
    Err(format!("{name:?} is not a host name: leave out the scheme, the port and any *"))
}

/// Origins whose pages may call the server from a browser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origins(pub(crate) Vec<String>);

impl Value for Origins {
    const EXPECTED: &'static str = "origins such as https://app.example.com,http://localhost:3000";

    fn parse(text: &str) -> Result<Self, String> {
        let origins = text.split(',').map(str::trim).filter(|origin| !origin.is_empty());
        origins.map(origin).collect::<Result<_, _>>().map(Self)
    }
}

fn origin(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is not an origin: write scheme://host or scheme://host:port");
    let url = url::Url::parse(text).map_err(|_| wrong())?;
    let whole = url.origin().ascii_serialization();
    let http = matches!(url.scheme(), "http" | "https");
    if http && whole.eq_ignore_ascii_case(text) { Ok(whole) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_and_addresses_without_ports() {
        let hosts = Hosts::parse("Files.Example.com, 10.0.0.7,[fe80::1]").unwrap();
        assert_eq!(hosts.0, ["files.example.com", "10.0.0.7", "fe80::1"]);
        assert_eq!(Hosts::parse("").unwrap().0, Vec::<String>::new());
        for wrong in ["http://x", "x:80", "*", "*.example.com", "a b", "ü.example"] {
            assert!(Hosts::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn origins_are_a_scheme_a_host_and_a_port() {
        let origins = Origins::parse("https://app.example.com, http://localhost:3000").unwrap();
        assert_eq!(origins.0, ["https://app.example.com", "http://localhost:3000"]);
        for wrong in ["null", "*", "app.example.com", "https://x/path", "ftp://x", "https://x:443"]
        {
            assert!(Origins::parse(wrong).is_err(), "{wrong}");
        }
    }
}
