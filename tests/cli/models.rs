//! Which models there are, which is used where none is named, and what its endpoint is told.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use serde_json::Value;

use crate::support::{Ended, Project};

/// A project with these settings, and a command in it with these variables.
fn posse(settings: &str, env: &[(&str, &str)], args: &[&str]) -> Ended {
    let mut project = Project::empty();
    project.write("config/posse.toml", settings);
    env.iter().for_each(|(name, value)| project.set(name, value));
    project.posse(args)
}

fn listed(settings: &str, env: &[(&str, &str)]) -> Vec<Value> {
    let list = posse(settings, env, &["model", "list", "--json"]).ok().json();
    list["models"].as_array().expect("a list").clone()
}

fn named<'a>(models: &'a [Value], name: &str) -> &'a Value {
    models.iter().find(|model| model["name"] == name).unwrap_or_else(|| panic!("no {name}: {models:?}"))
}

#[test]
fn the_default_is_found_in_order() {
    let default = |settings: &str, env: &[(&str, &str)]| {
        let models = listed(settings, env);
        let default = models.iter().find(|model| model["default"] == true);
        default.map_or(String::new(), |model| model["name"].as_str().expect("a name").to_owned())
    };
    let key = ("OPENAI_API_KEY", "k");
    assert_eq!(default("", &[]), "local");
    assert_eq!(default("", &[key]), "openai");
    assert_eq!(default("[models.a]\nmodel='m'", &[key]), "a");
    assert_eq!(default("default_model='local'\n[models.b]", &[]), "local");
    assert_eq!(default("default_model='b'\n[models.a]\n[models.b]", &[]), "b");
    assert_eq!(default("[models.a]\n[models.b]", &[]), "");
    let unclear = posse("[models.a]\n[models.b]", &[], &["model", "test"]);
    assert!(unclear.code != 0 && unclear.err.contains("a, b, local"), "{}", unclear.err);
}

#[test]
fn model_files_lie_in_the_cache_of_the_user() {
    let mut project = Project::empty();
    project.write("config/posse.toml", "");
    // Neither is whole, and that tells which of them is seen.
    project.write("cache/posse/models/smollm2-135m-instruct-q4_1.gguf", "x");
    project.write(".cache/posse/models/qwen2.5-coder-0.5b-instruct-q4.gguf", "x");
    let damaged = |project: &Project| -> Vec<String> {
        let list = project.posse(&["model", "list", "--json"]).ok().json();
        let files = list["local_files"].as_array().expect("a list");
        let damaged = files.iter().filter(|file| file["status"] == "damaged");
        damaged.map(|file| file["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(damaged(&project), ["qwen2.5-coder-0.5b"], "beneath HOME");
    project.set("XDG_CACHE_HOME", "cache");
    assert_eq!(damaged(&project), ["qwen2.5-coder-0.5b"], "a relative path is to be ignored");
    let cache = project.path().join("cache").display().to_string();
    project.set("XDG_CACHE_HOME", &cache);
    assert_eq!(damaged(&project), ["smollm2-135m"]);
    ["XDG_CACHE_HOME", "HOME"].into_iter().for_each(|name| project.set(name, ""));
    assert!(damaged(&project).is_empty());
}

#[test]
fn the_embedder_is_found_in_order() {
    let of = |settings: &str, env: &[(&str, &str)]| {
        let list = posse(settings, env, &["model", "list", "--json"]).ok().json();
        list["embedder"].clone()
    };
    let named = |settings: &str, env: &[(&str, &str)]| {
        let embedder = of(settings, env);
        ["model", "origin", "place"].map(|key| embedder[key].as_str().expect("a word").to_owned())
    };
    let (key, openai) = (("OPENAI_API_KEY", "k"), "https://api.openai.com/v1");
    assert_eq!(named("", &[]), ["all-MiniLM-L6-v2", "built_in", "on this machine"]);
    assert_eq!(named("", &[key]), ["text-embedding-3-small", "environment", openai]);
    // That key is for another endpoint.
    assert_eq!(
        named("", &[key, ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("OPENAI_MODEL", "m")])[0],
        "all-MiniLM-L6-v2"
    );
    assert_eq!(named("[embedder]\nkind='local'", &[key])[..2], ["all-MiniLM-L6-v2", "file"]);
    assert_eq!(of("[embedder]\nkind='none'", &[key]), Value::Null);
    let here = "[embedder]\nbase_url='http://127.0.0.1:8080/v1'\nmodel='nomic'";
    assert_eq!(named(here, &[key]), ["nomic", "file", "http://127.0.0.1:8080/v1"]);
    assert_eq!(of(here, &[key])["key_env"], Value::Null, "a key goes only where it belongs");
    assert_eq!(of("[embedder]\ndimension=256", &[key])["key_env"], "OPENAI_API_KEY");
}

#[test]
fn a_wrong_embedder_is_refused_by_its_key() {
    let wrong = |table: &str| posse(&format!("[embedder]\n{table}"), &[], &["model", "list"]).expect(2).err;
    let cases = [
        ("base_url='http://127.0.0.1:1/v1'", "[embedder] says no model"),
        ("base_url='127.0.0.1'\nmodel='m'", "must begin with http:// or https://"),
        ("kind='local'\nmodel='m'", "takes no other key"),
        ("batch=513", "batch is 513; it must lie between 1 and 512"),
        ("dimension=0", "dimension is 0; it must lie between 1 and 8192"),
        ("model='m'\n[embedder.headers]\nAuthorization='Bearer x'", "header Authorization holds a secret"),
    ];
    for (table, words) in cases {
        let said = wrong(table);
        assert!(said.contains(words), "{table}: {said}");
    }
    let none = posse("[embedder]\nkind='none'", &[], &["model", "test", "--embedder"]).expect(2);
    assert!(none.err.contains("there is to be no embedder"), "{}", none.err);
    let not_here = posse("", &[], &["model", "test", "--embedder"]);
    assert!(not_here.err.contains("fetch it with posse model pull all-minilm-l6-v2"), "{}", not_here.err);
}

#[test]
fn a_model_may_be_named_at_what_was_found() {
    let models = listed("", &[("OPENAI_API_KEY", "k"), ("POSSE_MODEL", "gpt-x")]);
    let named = named(&models, "gpt-x");
    assert_eq!((&named["model"], &named["default"]), (&"gpt-x".into(), &true.into()));
    let unknown = posse("[models.a]\nmodel='m'", &[("POSSE_MODEL", "b")], &["model", "list"]).expect(2);
    assert!(unknown.err.contains("there are a, local"), "{}", unknown.err);
    let nobody = posse("", &[], &["model", "test", "--base-url", "http://127.0.0.1:1/v1"]).expect(2);
    assert!(nobody.err.contains("set OPENAI_MODEL or --model"), "{}", nobody.err);
}

#[test]
fn the_local_model_may_be_a_fallback_without_a_table() {
    let settings = "[models.a]\nmodel='m'\nbase_url='http://127.0.0.1:1/v1'\nfallback='local'";
    assert_eq!(named(&listed(settings, &[]), "a")["model"], "m");
    let not_fetched = posse(settings, &[], &["model", "test", "a"]);
    assert!(not_fetched.err.contains("fetch it with posse model pull"), "{}", not_fetched.err);
}

#[test]
fn keys_go_where_they_belong() {
    let settings = "[models.none]\nmodel='m'\n[models.own]\nbase_url='https://api.openai.com/v1'\n\
                    [models.other]\nbase_url='https://api.openai.com.example/v1'\n\
                    [models.here]\nbase_url='http://127.0.0.1:8080/v1'\n\
                    [models.mine]\nbase_url='http://127.0.0.1:8080/v1'\napi_key_env='MINE'";
    let models = listed(settings, &[("OPENAI_API_KEY", "k"), ("MINE", "k")]);
    let key = |name: &str| named(&models, name)["key_env"].clone();
    assert_eq!((key("none"), key("own")), ("OPENAI_API_KEY".into(), "OPENAI_API_KEY".into()));
    assert_eq!((key("other"), key("here"), key("mine")), (Value::Null, Value::Null, "MINE".into()));
}

/// The head of the first request that a command makes to an endpoint, which says no; and how that ended.
fn first_request(env: &[(&str, &str)], args: &[&str], settings: impl Fn(&str) -> String) -> (String, Ended) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("bound"));
    let heard = std::thread::spawn(move || {
        let mut first = None;
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let head: String =
                reader.by_ref().lines().map_while(Result::ok).take_while(|l| !l.is_empty()).map(|l| l + "\n").collect();
            if head.is_empty() {
                break;
            }
            first.get_or_insert(head);
            let refusal = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = reader.get_mut().write_all(refusal.as_bytes());
        }
        first.unwrap_or_default()
    });
    let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.replace("URL", &url))).collect();
    let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let ended = posse(&settings(&url), &env, args);
    // Whoever says nothing ends it.
    drop(std::net::TcpStream::connect(url.trim_start_matches("http://").trim_end_matches("/v1")));
    (heard.join().expect("heard").to_ascii_lowercase(), ended)
}

#[test]
fn headers_are_made_of_variables() {
    let settings = |value: &str, url: &str| {
        format!("[models.a]\nmodel='m'\ntool_calling='native'\nbase_url='{url}'\nheaders = {{ X-Key = '{value}' }}")
    };
    let env = [("MINE", "k")];
    let (head, _) = first_request(&env, &["model", "test", "a"], |url| settings("Bearer ${MINE}!", url));
    assert!(head.contains("x-key: bearer k!\n"), "{head}");
    let (head, refused) = first_request(&env, &["model", "test", "a"], |url| settings("${GONE}", url));
    assert!(head.is_empty() && refused.err.contains("GONE, which is not set"), "{head}{}", refused.err);
}

#[test]
fn the_usual_variables_of_an_organisation_just_work() {
    let env = [
        ("OPENAI_BASE_URL", "URL"),
        ("OPENAI_API_KEY", "k"),
        ("OPENAI_MODEL", "m"),
        ("OPENAI_ORG_ID", "org-1"),
        ("OPENAI_PROJECT_ID", "proj-2"),
    ];
    let (head, _) = first_request(&env, &["model", "test"], |_| String::new());
    for header in ["authorization: bearer k\n", "openai-organization: org-1\n", "openai-project: proj-2\n"] {
        assert!(head.contains(header), "{head} lacks {header}");
    }
}

#[test]
fn what_flags_say_of_an_endpoint_holds_for_the_default_model() {
    let settings = |url: &str| {
        format!(
            "default_model='a'\n[models.a]\nmodel='m'\nbase_url='{url}'\napi_key_env=''\ntool_calling='native'\n\
             organization='org-1'\nheaders = {{ X-More = '1' }}"
        )
    };
    let args = ["model", "test", "--organization", "org-9", "--header", "X-Team: blue"];
    let (head, _) = first_request(&[], &args, settings);
    for header in ["openai-organization: org-9\n", "x-more: 1\n", "x-team: blue\n"] {
        assert!(head.contains(header), "{head} lacks {header}");
    }
    let local = posse("", &[], &args).expect(2);
    assert!(local.err.contains("add --base-url"), "{}", local.err);
    let open = ["model", "test", "--header", "Authorization: Bearer sk-1"];
    let refused = posse(&settings("http://127.0.0.1:1/v1"), &[], &open).expect(2);
    assert!(refused.err.contains("holds a secret"), "{}", refused.err);
}
