//! Who may use a server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use lapidary_server::{BadKeyFile, Keys, Tls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::{Setup, question};

/// Hashes of `open sesame` and of `swordfish`.
const FILE: &str = "# the team's keys

41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb  ali
B9F195C5CC7EF6AFADBFBC42892AD47D3B24C6BC94BB510C4564A90A14E8B799
";

#[test]
fn a_key_file_is_a_list_of_hashes() {
    assert_eq!(Keys::parse(FILE).unwrap().count(), 2);
    assert_eq!(Keys::parse("").unwrap(), Keys::default());
    let short = "# a comment\n41ef4bb0";
    assert_eq!(Keys::parse(short), Err(BadKeyFile { line: 2 }));
    assert_eq!(Keys::parse("open sesame"), Err(BadKeyFile { line: 1 }));
    assert_eq!(Keys::parse(&"é".repeat(32)), Err(BadKeyFile { line: 1 }));
}

#[test]
fn a_server_with_keys_opens_to_nobody_else() {
    let keys = Keys::parse(FILE).unwrap();
    let server = Setup { keys, ..Setup::new(&[("hi", "Hello.")]) }.start();
    let body = question("hi").to_string();
    let ask =
        |headers: &[(&str, &str)]| server.send("POST", "/v1/chat/completions", headers, &body);
    for headers in [
        ("authorization", "Bearer open sesame"),
        ("authorization", "bearer swordfish"),
        ("x-api-key", "open sesame"),
    ] {
        assert_eq!(ask(&[headers]).status, 200, "{headers:?}");
    }
    for headers in [
        ("authorization", "Bearer open sesam"),
        ("authorization", "Basic open sesame"),
        ("authorization", "open sesame"),
        ("authorization", "Bearer "),
        ("x-api-key", ""),
        ("cookie", "open sesame"),
    ] {
        let refused = ask(&[headers]);
        assert_eq!((refused.status, &*refused.code()), (401, "invalid_api_key"), "{headers:?}");
        assert_eq!(refused.header("www-authenticate"), Some("bearer"));
    }
    for (path, status) in [
        ("/", 200),
        ("/health", 200),
        ("/ready", 200),
        ("/props", 401),
        ("/metrics", 401),
        ("/v1/models", 401),
        ("/nowhere", 401),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    let theirs = server.post("/v1/messages", &question("hi"));
    assert_eq!(theirs.json()["error"]["type"], "authentication_error");
}

#[test]
fn pages_of_other_sites_are_turned_away() {
    let server = Setup::new(&[("hi", "Hello.")]).start();
    let body = question("hi").to_string();
    for (origin, status) in [
        ("http://localhost", 200),
        ("https://localhost", 200),
        ("https://example.org", 403),
        ("http://localhost:3000", 403),
        ("http://localhost.example.org", 403),
        ("null", 403),
    ] {
        let answer = server.send("POST", "/v1/chat/completions", &[("origin", origin)], &body);
        assert_eq!(answer.status, status, "{origin}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

const CERTIFICATE: &[u8] = include_bytes!("data/certificate.pem");
const KEY: &[u8] = include_bytes!("data/key.pem");

#[test]
fn a_certificate_makes_it_https_and_a_silent_client_holds_up_nobody() {
    let tls = Tls::from_pem(CERTIFICATE, KEY).unwrap();
    let server = Setup { tls: Some(tls), ..Setup::new(&[]) }.start();
    let silent = TcpStream::connect(server.address).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CERTIFICATE).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(server.address).unwrap());
    stream.write_all(b"GET /health HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // The connection may end without TLS's own goodbye.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK") && answer.contains("\"ok\""), "{answer}");
    drop(silent);
}

#[test]
fn a_certificate_and_a_key_must_belong_together() {
    let message =
        |result: Result<Tls, _>| result.err().map(|e: lapidary_server::BadTls| e.to_string());
    let said = message(Tls::from_pem(b"", KEY)).unwrap();
    assert!(said.contains("TLS"), "{said}");
    let said = message(Tls::from_pem(CERTIFICATE, CERTIFICATE)).unwrap();
    assert!(said.starts_with("the TLS key cannot be read"), "{said}");
}
