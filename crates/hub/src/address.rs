//! Addresses: where a redirect leads, and whether two belong to one server.

use ureq::http::Uri;

/// Scheme, host and port of an address: who answers it.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Origin {
    scheme: String,
    host: String,
    port: u16,
}

impl Origin {
    /// Who answers an address, if it is a complete one.
    pub(crate) fn of(address: &str) -> Option<Self> {
        let uri: Uri = address.parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let usual = match &*scheme {
            "https" => 443,
            "http" => 80,
            _ => return None,
        };
        let host = uri.host()?.to_ascii_lowercase();
        Some(Self { port: uri.port_u16().unwrap_or(usual), scheme, host })
    }

    /// Whether nobody on the way can read along.
    pub(crate) fn is_safe(&self) -> bool {
        self.scheme == "https"
    }
}

/// The address that a `Location` means, seen from the address that gave it.
pub(crate) fn follow(from: &str, location: &str) -> Option<String> {
    if location.split('/').next().is_some_and(|first| first.ends_with(':')) {
        return Origin::of(location).map(|_| location.to_owned());
    }
    let uri: Uri = from.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    let to = match location {
        other if other.starts_with("//") => format!("{scheme}:{other}"),
        path if path.starts_with('/') => format!("{scheme}://{authority}{path}"),
        relative => {
            let folder = uri.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{scheme}://{authority}{folder}/{relative}")
        }
    };
    Origin::of(&to).map(|_| to)
}

/// A path as it stands in an address; slashes stay.
pub(crate) fn encoded(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_where_browsers_go() {
        let from = "https://hub.example:8443/a/b/c?x=1";
        for (location, to) in [
            ("http://other/x", Some("http://other/x")),
            ("//cdn/x", Some("https://cdn/x")),
            ("/x?y", Some("https://hub.example:8443/x?y")),
            ("d", Some("https://hub.example:8443/a/b/d")),
            ("file:///etc/passwd", None),
        ] {
            let followed = follow(from, location);
            assert_eq!(followed.as_deref(), to, "{location}");
        }
    }

    #[test]
    fn another_port_is_another_server() {
        assert_eq!(Origin::of("https://A.b/x"), Origin::of("https://a.B:443/y"));
        assert_ne!(Origin::of("http://a.b/"), Origin::of("http://a.b:81/"));
        assert_ne!(Origin::of("http://a.b/"), Origin::of("https://a.b/"));
    }

    #[test]
    fn names_are_encoded_byte_by_byte() {
        assert_eq!(encoded("a b/ü#?.gguf"), "a%20b/%C3%BC%23%3F.gguf");
    }
}
