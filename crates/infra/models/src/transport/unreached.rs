//! Why nothing answers: whose trouble that is, and what to do about it.

use posse_core::model::ModelErrorKind;

use crate::error::Failure;

/// The proxy that requests to `url` go through, by the variables that the HTTP client reads: the variable and the
/// proxy's host, without what may be a password.
pub(super) fn proxy_for(url: &reqwest::Url, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let value = |name: &str| {
        let found = [name.to_owned(), name.to_lowercase()].into_iter().find_map(|name| Some((env(&name)?, name)));
        found.filter(|(value, _)| !value.trim().is_empty())
    };
    let host = url.host_str()?;
    let is_left_out = |pattern: &str| {
        let pattern = pattern.trim().trim_start_matches('.');
        pattern == "*" || host == pattern || (!pattern.is_empty() && host.ends_with(&format!(".{pattern}")))
    };
    if value("NO_PROXY").is_some_and(|(all, _)| all.split(',').any(is_left_out)) {
        return None;
    }
    let own = if url.scheme() == "https" { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    let (proxy, name) = value(own).or_else(|| value("ALL_PROXY"))?;
    let at = proxy.rsplit('@').next().unwrap_or_default();
    let at = at.split("://").last().unwrap_or_default().trim_end_matches('/');
    Some(format!("{name}={at}"))
}

pub(super) fn network(error: reqwest::Error, proxy: Option<&str>) -> Failure {
    // The address may hold a key in its query.
    let error = error.without_url();
    let why = chain(&error);
    if let Some(what) = own_trouble(&error) {
        let words = format!("could not be asked from here: {what} ({why})");
        return Failure::plain(ModelErrorKind::WorkerUnfit, words);
    }
    if let Some(words) = wrong_certificate(&why) {
        return Failure::plain(ModelErrorKind::WorkerUnfit, words);
    }
    if error.is_connect()
        && let Some(proxy) = proxy
    {
        let words = format!(
            "could not be reached through the proxy of {proxy}: {why}. Mend that, or leave the host out with NO_PROXY"
        );
        return Failure::plain(ModelErrorKind::WorkerUnfit, words);
    }
    let (kind, words) = match error.is_connect() {
        true => (ModelErrorKind::Unreachable, format!("could not be reached: {why}")),
        false => (ModelErrorKind::Transient, format!("broke the connection: {why}")),
    };
    Failure::plain(kind, words)
}

pub(super) fn without_client(why: &str) -> String {
    match why.contains("No CA certificates were loaded") {
        true => {
            "this machine knows no authority for certificates. Install the system's (ca-certificates), or name a file \
                 that has one in SSL_CERT_FILE"
                .into()
        }
        false => format!("no HTTP client: {why}"),
    }
}

/// That the certificate of the server is not trusted here, if that is why it cannot be asked.
fn wrong_certificate(why: &str) -> Option<String> {
    if why.contains("UnknownIssuer") {
        return Some(format!(
            "shows a certificate of an authority that this machine does not know: {why}. Add the authority to the \
             system's (update-ca-certificates), or name its file in SSL_CERT_FILE"
        ));
    }
    // Guides make it so, in one step. Trusting it as an authority would not help.
    why.contains("CaUsedAsEndEntity").then(|| {
        format!(
            "shows an authority's own certificate, which is none for a server: {why}. Give the server one that is no \
             authority's (openssl req -x509 -addext basicConstraints=critical,CA:FALSE), and name its file, or its \
             authority's, in SSL_CERT_FILE"
        )
    })
}

/// What this worker or its machine lacks, if that is why a request failed: none of it says anything
/// about the endpoint.
fn own_trouble(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            let what = match io.raw_os_error() {
                Some(libc::EMFILE) => Some("this process has too many files open (ulimit -n)"),
                Some(libc::ENFILE) => Some("this machine has too many files open"),
                Some(libc::ENOMEM | libc::ENOBUFS) => Some("this machine is out of memory"),
                Some(libc::EADDRNOTAVAIL) => Some("this machine is out of ports or has no address to ask from"),
                Some(libc::ENETUNREACH | libc::ENETDOWN | libc::EHOSTUNREACH) => {
                    Some("there is no way there from this machine's network")
                }
                Some(libc::EACCES | libc::EPERM) => Some("this process may not open the connection"),
                _ if io.kind() == std::io::ErrorKind::OutOfMemory => Some("this machine is out of memory"),
                _ => None,
            };
            if what.is_some() {
                return what;
            }
        }
        // Errors of the resolver have no `errno`.
        let words = error.to_string();
        if words.contains("dns error") || words.contains("failed to lookup address") {
            return Some(
                "its host's name cannot be resolved; check this machine's network and name servers, and `base_url` for \
                 this model in config/posse.toml",
            );
        }
        cause = error.source();
    }
    None
}

/// An error with its causes; reqwest's own words say only that something failed.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Connect(#[source] Error);

    #[test]
    fn what_this_machine_lacks_is_told_from_what_an_endpoint_does() {
        for number in [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOMEM,
            libc::ENOBUFS,
            libc::EADDRNOTAVAIL,
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::EACCES,
        ] {
            assert!(own_trouble(&Connect(Error::from_raw_os_error(number))).is_some(), "{number}");
        }
        for number in [libc::ECONNREFUSED, libc::ECONNRESET, libc::ETIMEDOUT, libc::EPIPE] {
            assert_eq!(own_trouble(&Connect(Error::from_raw_os_error(number))), None, "{number}");
        }
        let dns = "failed to lookup address information: Temporary failure in name resolution";
        assert!(own_trouble(&Connect(Error::other(dns))).is_some());
    }

    #[test]
    fn the_proxy_is_the_one_that_the_client_takes() {
        let proxy = |url: &str, variables: &[(&str, &str)]| {
            let env =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            proxy_for(&reqwest::Url::parse(url).expect("a URL"), &env)
        };
        let named =
            [("HTTPS_PROXY", "http://me:secret@proxy.example:3128/"), ("no_proxy", "other.example,.inner.example")];
        assert_eq!(proxy("https://host.example/v1", &named).as_deref(), Some("HTTPS_PROXY=proxy.example:3128"));
        assert_eq!(proxy("http://host.example/v1", &named), None);
        assert_eq!(proxy("https://other.example/v1", &named), None);
        assert_eq!(proxy("https://a.inner.example/v1", &named), None);
        assert_eq!(proxy("http://host.example/v1", &[("all_proxy", "p:1")]).as_deref(), Some("all_proxy=p:1"));
        assert_eq!(proxy("http://host.example/v1", &[("HTTP_PROXY", " ")]), None);
    }
}
