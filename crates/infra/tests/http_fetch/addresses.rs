//! What is not the public internet is not reached, however it is written, looked up or sent on to.

use posse_core::tool::ToolErrorCategory::{InvalidArguments, PermissionDenied};
use posse_core::tool::web::{Method, WebRules};
use posse_infra::tool::web::WebSettings;
use serde_json::json;

use super::site::{Site, answer, html, path};
use super::{Names, agent, on_loopback};

/// An agent that may reach any host, on a machine whose operator opened nothing, and this port of it.
fn open_agent(names: Names, port: u16) -> super::Agent {
    let settings = WebSettings { robots: false, seconds: 20, ..WebSettings::default() };
    agent(settings, names, &["*", &format!("*:{port}")])
}

/// Addresses as they can be written, all of which a careless check lets through or a careless library connects to.
const WRITTEN: [&str; 46] = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "0177.0x0.0.1",
    "0",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.254",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "0xa9fea9fe",
    "2852039166",
    "169.254.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "0300.0250.0.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "127.0.0.1.",
    "１２７.０.０.１",
    "127。0。0。1",
    "①②⑦.0.0.1",
    "%31%32%37.0.0.1",
    "12%37.0.0.1",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:a9fe:a9fe]",
];

const WRITTEN_V6: [&str; 20] = [
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::]",
    "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::1]",
    "[100::1]",
    "[2001::1]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    "[2001:db8::1]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[3fff::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
];

#[tokio::test]
async fn no_spelling_of_an_address_that_is_not_public_is_reached() {
    let site = Site::new(|_| html("SECRET"));
    let agent = open_agent(Names::default(), site.at.port());
    for host in WRITTEN.iter().chain(&WRITTEN_V6) {
        for url in [format!("http://{host}/"), site.url(host, "/latest/meta-data"), format!("https://{host}/")] {
            let refused = agent.refusal(&url).await;
            assert_eq!(refused.category, PermissionDenied, "{url}: {}", refused.message);
            assert!(refused.message.contains("an address "), "{url}: {}", refused.message);
        }
    }
    assert_eq!(site.requests(), [""; 0], "nobody was asked");
}

#[tokio::test]
async fn no_name_of_an_address_that_is_not_public_is_reached() {
    let site = Site::new(|_| html("SECRET"));
    let names = [
        ("loop.example", "127.0.0.1"),
        ("loop6.example", "::1"),
        ("mapped.example", "::ffff:127.0.0.1"),
        ("metadata.example", "169.254.169.254"),
        ("metadata6.example", "fd00:ec2::254"),
        ("private.example", "10.1.2.3"),
        ("nat64.example", "64:ff9b::7f00:1"),
        ("carrier.example", "100.64.9.9"),
        ("zero.example", "0.0.0.0"),
        ("localhost", "127.0.0.1"),
        ("printer.local", "192.168.1.9"),
        ("xn--bcher-kva.example", "172.20.0.1"),
    ];
    let known = names.iter().fold(Names::default(), |all, (name, address)| all.at(name, &[&[*address]]));
    // One public address among others does not make a name public: which is taken is nobody's to say.
    let known = known.at("both.example", &[&["8.8.8.8", "127.0.0.1"]]).at("both6.example", &[&["::1", "2606:4700::1"]]);
    let agent = open_agent(known, site.at.port());
    let tried =
        names.iter().map(|(name, _)| *name).chain(["both.example", "both6.example", "LOOP.Example", "loop.example."]);
    for host in tried.chain(["bücher.example"]) {
        let refused = agent.refusal(&site.url(host, "/")).await;
        assert_eq!(refused.category, PermissionDenied, "{host}: {}", refused.message);
        assert!(refused.message.contains("agents reach the public internet alone"), "{host}: {}", refused.message);
    }
    assert_eq!(site.requests(), [""; 0], "nobody was asked");
}

#[tokio::test]
async fn what_is_looked_at_is_what_is_connected_to() {
    // The name moves between one look and the next; only what was looked at is connected to, so the second is refused.
    let site = Site::new(|request| match path(request) {
        "/" => answer("302 Found", &["location: /again"], ""),
        _ => html("SECRET"),
    });
    let names = Names::default().at("moves.example", &[&["127.0.0.1"], &["169.254.169.254"]]);
    let agent = agent(on_loopback(), names, &[&format!("moves.example:{}", site.at.port())]);
    let refused = agent.refusal(&site.url("moves.example", "/")).await;
    assert_eq!(refused.category, PermissionDenied, "{}", refused.message);
    assert!(refused.message.contains("moves.example is at 169.254.169.254"), "{}", refused.message);
    assert_eq!(site.requests().len(), 1);
}

#[tokio::test]
async fn no_redirect_leads_where_a_request_may_not_go() {
    let inner = Site::new(|_| html("SECRET"));
    let to = [
        "http://169.254.169.254/latest".to_owned(),
        "//10.0.0.1/".to_owned(),
        "http://[::ffff:a9fe:a9fe]/".to_owned(),
        "http://0xa9fea9fe/".to_owned(),
        "http://private.example/".to_owned(),
        inner.url("other.example", "/"),
        "ftp://open.example/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1:25/x".to_owned(),
        "http://user:password@open.example/".to_owned(),
        "javascript:alert(1)".to_owned(),
        "http://open.example:22/".to_owned(),
    ];
    let targets = to.clone();
    let site = Site::new(move |request| {
        let target = path(request).trim_start_matches('/').parse::<usize>().map(|n| targets[n].clone());
        answer("301 Moved", &[&format!("location: {}", target.unwrap())], "SECRET")
    });
    let names = Names::default().at("open.example", &[&["127.0.0.1"]]).at("private.example", &[&["10.9.9.9"]]);
    let names = names.at("other.example", &[&["127.0.0.1"]]);
    let hosts =
        [&format!("open.example:{}", site.at.port()), "open.example", "private.example", "169.254.169.254", "10.0.0.1"];
    let agent = agent(on_loopback(), names, &hosts);
    for (n, target) in to.iter().enumerate() {
        let refused = agent.refusal(&site.url("open.example", &format!("/{n}"))).await;
        let expected = [PermissionDenied, InvalidArguments];
        assert!(expected.contains(&refused.category), "{target}: {refused:?}");
        assert!(!refused.message.contains("SECRET"), "{target}: {refused:?}");
    }
    assert_eq!((site.requests().len(), inner.requests().len()), (to.len(), 0));
}

#[tokio::test]
async fn only_hosts_that_the_persona_names_are_reached() {
    let site = Site::new(|_| html("fine"));
    let port = site.at.port();
    let names = ["a.example", "b.a.example", "xa.example", "example"];
    let known = names.iter().fold(Names::default(), |all, name| all.at(name, &[&["127.0.0.1"]]));
    let mut agent = agent(on_loopback(), known, &[]);
    let mut try_hosts = async |hosts: &[String]| {
        agent.cx.web = WebRules { hosts: hosts.into(), methods: vec![Method::Get] };
        let mut reached = Vec::new();
        for name in names {
            match agent.fetch(json!({"url": site.url(name, "/")})).await {
                Ok(_) => reached.push(name),
                Err(error) => assert!(error.message.contains("none of the hosts this agent may reach"), "{error}"),
            }
        }
        reached
    };
    assert_eq!(try_hosts(&[]).await, [""; 0]);
    assert_eq!(try_hosts(&["a.example".into()]).await, [""; 0], "the port is not named");
    assert_eq!(try_hosts(&[format!("a.example:{port}")]).await, ["a.example"]);
    assert_eq!(try_hosts(&[format!("*.a.example:{port}")]).await, ["b.a.example"]);
    assert_eq!(try_hosts(&[format!("*.example:{port}")]).await, ["a.example", "b.a.example", "xa.example"]);
    assert_eq!(try_hosts(&[format!("*:{port}")]).await, names);
    agent.cx.web = WebRules { hosts: vec![format!("*:{port}")], methods: Vec::new() };
    let posted =
        agent.fetch(json!({"url": site.url("example", "/"), "method": "POST", "body": "{}"})).await.unwrap_err();
    assert!(posted.message.contains("may make no POST request, only GET, HEAD"), "{posted}");
}

#[tokio::test]
async fn no_other_door_than_the_webs_is_opened() {
    let agent = open_agent(Names::default(), 80);
    for url in [
        "file:///etc/passwd",
        "ftp://example.com/",
        "example.com",
        "",
        "http://",
        "data:text/html,x",
        "http://a:b@8.8.8.8/",
    ] {
        let refused = agent.refusal(url).await;
        assert_eq!(refused.category, InvalidArguments, "{url}: {}", refused.message);
    }
    let long = format!("http://example.com/{}", "x".repeat(5000));
    assert!(agent.refusal(&long).await.message.contains("at most 4,096 are allowed"));
    for (pattern, is_right) in [
        ("example.com", true),
        ("*.example.com:8443", true),
        ("[::1]:80", true),
        ("*", true),
        ("http://example.com", false),
        ("example.com/a", false),
        ("EXAMPLE.com", false),
        ("bücher.example", false),
        ("example.com:0", false),
        ("", false),
        ("*.", false),
        ("a:b:c", false),
        ("example.com:x", false),
    ] {
        let rules = WebRules { hosts: vec![pattern.into()], methods: Vec::new() };
        assert_eq!(rules.problem().is_none(), is_right, "{pattern}: {:?}", rules.problem());
    }
}
