//! The hosts of a connection string, as libpq has read it, in the order in which it tries them.

use serde::{Deserialize, Serialize};

/// libpq's options of these names: lists with commas between.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// Names, or folders of sockets.
    pub host: String,
    /// Addresses; empty, or as many as there are names.
    pub hostaddr: String,
    /// One for all, or as many as there are hosts.
    pub port: String,
}

fn items(list: &str) -> Vec<&str> {
    if list.is_empty() { Vec::new() } else { list.split(',').collect() }
}

/// The item of this host, empty where there is none.
fn item<'a>(items: &[&'a str], at: usize) -> &'a str {
    match items {
        [of_all] => of_all,
        _ => items.get(at).copied().unwrap_or_default(),
    }
}

/// A list that begins with this host's item and goes on in its order.
fn turned(list: &str, hosts: usize, first: usize) -> String {
    let mut items = items(list);
    if items.len() == hosts {
        items.rotate_left(first);
    }
    items.join(",")
}

impl Hosts {
    /// The same hosts, beginning with the one that answered; `None` if there is nothing to choose.
    pub fn beginning_with(&self, host: &str, port: &str) -> Option<Self> {
        let (names, addresses, ports) = (items(&self.host), items(&self.hostaddr), items(&self.port));
        let count = names.len().max(addresses.len());
        let answered = |at: &usize| {
            let name = Some(item(&names, *at)).filter(|name| !name.is_empty());
            let of_host = item(&ports, *at);
            name.unwrap_or(item(&addresses, *at)) == host && (of_host.is_empty() || of_host == port)
        };
        let first = (0..count).find(answered).filter(|_| count > 1)?;
        let [host, hostaddr, port] =
            [&self.host, &self.hostaddr, &self.port].map(|list| turned(list, count, first));
        Some(Self { host, hostaddr, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(host: &str, hostaddr: &str, port: &str) -> Hosts {
        Hosts { host: host.into(), hostaddr: hostaddr.into(), port: port.into() }
    }

    #[test]
    fn the_host_that_answered_comes_first_and_keeps_its_address_and_port() {
        let three = hosts("a,b,c", "1,2,3", "10,11,12");
        assert_eq!(three.beginning_with("b", "11"), Some(hosts("b,c,a", "2,3,1", "11,12,10")));
        assert_eq!(three.beginning_with("a", "10"), Some(three.clone()));
        // One port for all, none, and hosts that differ by it alone.
        assert_eq!(hosts("a,b", "", "5432").beginning_with("b", "5432"), Some(hosts("b,a", "", "5432")));
        assert_eq!(hosts("a,/tmp", "", "").beginning_with("/tmp", "5432"), Some(hosts("/tmp,a", "", "")));
        assert_eq!(hosts("a,a", "", "1,2").beginning_with("a", "2"), Some(hosts("a,a", "", "2,1")));
        // By addresses alone, and with a name for some.
        assert_eq!(hosts("", "1,2", "5432").beginning_with("2", "5432"), Some(hosts("", "2,1", "5432")));
        assert_eq!(hosts(",b", "1,2", "1,2").beginning_with("1", "1"), Some(hosts(",b", "1,2", "1,2")));
    }

    #[test]
    fn without_a_choice_or_a_known_host_the_string_stays_as_it_is() {
        assert_eq!(hosts("a", "", "5432").beginning_with("a", "5432"), None);
        assert_eq!(hosts("", "", "5432").beginning_with("/tmp", "5432"), None);
        assert_eq!(hosts("a,b", "", "1,2").beginning_with("c", "1"), None);
        assert_eq!(hosts("a,b", "", "1,2").beginning_with("a", "2"), None);
    }
}
