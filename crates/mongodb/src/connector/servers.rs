//! The servers that a MongoDB URL names, as the driver reads it.

use mongodb::options::{ConnectionString, HostInfo, ServerAddress};

use forebay_sdk::settings::Reach;

/// Adds the servers of `url` to `reach`: of a replica set those that are named, of `mongodb+srv` the name
/// that is looked up.
pub(crate) fn add(url: &str, reach: &mut Reach) {
    match ConnectionString::parse(url).map(|url| url.host_info) {
        Ok(HostInfo::HostIdentifiers(servers)) => {
            for server in servers {
                match server {
                    ServerAddress::Tcp { host, port } => {
                        reach.add_host(&host, Some(port.unwrap_or(27017)));
                    }
                    // The directory of a socket: a path in any case.
                    other => reach.paths.push(other.to_string().into()),
                }
            }
        }
        Ok(HostInfo::DnsRecord(name)) => reach.add_host(&name, None),
        // A URL that cannot be parsed is refused when it is used.
        Ok(_) | Err(_) => {}
    }
}
