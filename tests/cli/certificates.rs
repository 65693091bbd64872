//! Models behind certificates of an authority of one's own.
//!
//! Keys and certificates lie in `data/tls`, good until 2120. They are of nobody: who has the tests has the keys.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{Ended, ModelServer, Project, Say, until};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tls").join(name)
}

/// A model that shows this certificate.
fn server(certificate: &str) -> ModelServer {
    let chain = CertificateDer::pem_file_iter(data(certificate)).expect("a file").collect::<Result<_, _>>();
    let key = PrivateKeyDer::from_pem_file(data("server-key.pem")).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain.expect("certificates"), key);
    let config = Arc::new(config.expect("a configuration"));
    let through = move |stream: TcpStream| {
        let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
        Some(StreamOwned::new(connection, stream))
    };
    ModelServer::start_with("https", vec![Say::Call("finish", json!({"final_summary": "All is well."}))], through)
}

fn project(server: &ModelServer) -> Project {
    let mut project = Project::with_model(server);
    // That it is on this machine makes no difference to a certificate.
    project.set("OPENAI_API_KEY", "sk-canary");
    project
}

fn run(project: &Project, authorities: Option<&str>) -> Ended {
    let mut command = project.command(&["run", "--role", "scribe", "Say that all is well"]);
    command.envs(authorities.map(|name| ("SSL_CERT_FILE", data(name))));
    let output = command.output().expect("started");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

#[track_caller]
fn said_once(said: &str, words: &[&str]) {
    for words in words {
        assert_eq!(said.matches(words).count(), 1, "{words}: {said}");
    }
}

#[test]
fn an_authority_of_ones_own_is_missed_by_name_and_can_be_named() {
    let server = server("server.pem");
    let project = project(&server);
    let missed = run(&project, None).expect(1);
    said_once(
        &missed.err,
        &["an authority that this machine does not know", "SSL_CERT_FILE", "update-ca-certificates"],
    );
    assert!(missed.err.contains("job 1 waits") && !missed.err.contains("canary"), "{}", missed.err);
    let job = project.posse(&["show", "1", "--json"]).ok().json()["job"].clone();
    assert_eq!((&job["state"], &job["attempt"]), (&"scheduled".into(), &0.into()), "no attempt is spent: {job}");
    let test = project.posse(&["model", "test", "openai"]).expect(1);
    said_once(&test.err, &["an authority that this machine does not know"]);
    assert_eq!(server.requests().len(), 0, "nobody who is not known is told anything");

    let ran = run(&project, Some("authority.pem")).ok();
    assert!(ran.out.contains("All is well."), "{}", ran.out);
    assert!(!server.requests().is_empty());
}

#[test]
fn a_worker_says_once_that_it_does_not_know_an_authority() {
    let server = server("server.pem");
    let project = project(&server);
    for _ in 0..3 {
        project.posse(&["enqueue", "--role", "scribe", "x"]).ok();
    }
    let worker = project.start(&["work", "--slots", "3"]);
    let jobs = || project.posse(&["list", "--json"]).ok().json()["jobs"].as_array().expect("jobs").clone();
    until("all wait", || jobs().iter().all(|job| job["state"] == "scheduled"));
    worker.terminate();
    said_once(&worker.wait().err, &["an authority that this machine does not know", "cannot be asked by this worker"]);
}

#[test]
fn a_certificate_that_vouches_for_itself_is_named_as_such() {
    let server = server("self-signed.pem");
    let project = project(&server);
    for authorities in [None, Some("self-signed.pem")] {
        let refused = run(&project, authorities).expect(1);
        said_once(&refused.err, &["an authority's own certificate", "CA:FALSE"]);
    }
}

#[test]
fn a_file_of_authorities_that_is_not_there_is_named() {
    let server = server("server.pem");
    let project = project(&server);
    let refused = run(&project, Some("none.pem")).expect(1);
    assert!(refused.err.contains("SSL_CERT_FILE"), "{}", refused.err);
}

#[test]
fn where_nobody_shows_a_certificate_no_authority_is_needed() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "All is well."}))]);
    let project = project(&server);
    let ran = run(&project, Some("none.pem")).ok();
    assert!(ran.out.contains("All is well."), "{}", ran.out);
}
