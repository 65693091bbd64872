//! Flags, environment and file become settings, and what is wrong with them is named.

use crate::support::Project;

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let mut project = Project::empty().untrusted();
    project.write("a/b/notes.txt", "x");
    let deep = project.path().join("a/b").canonicalize().expect("real");
    let root = project.path().canonicalize().expect("real");
    let database = |project: &Project, args: &[&str]| {
        let all: Vec<_> = args.iter().copied().chain(["db", "path"]).collect();
        let output = project.command(&all).current_dir(&deep).output().expect("started");
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8(said).expect("UTF-8").trim_end().to_owned()
    };
    assert_eq!(database(&project, &[]), deep.join(".posse/posse.db").to_str().expect("UTF-8"));

    let file = "database = 'x.db'\nslots = 0\ndefault_model = 'a'\n[models.a]\nmodel = 'm'\n[models.e]\n[models.f]\n\
                base_url = 'http://127.0.0.1:1/v1'\nmodel = 'm'\napi_key_env = ''\nretries = 0";
    project.write("config/posse.toml", file.replace("slots = 0\n", ""));
    let refused = database(&project, &[]);
    assert!(refused.contains("is not trusted") && refused.contains("config/posse.toml"), "{refused}");
    project.set("POSSE_TRUST", root.to_str().expect("UTF-8"));
    assert_eq!(database(&project, &[]), root.join("x.db").to_str().expect("UTF-8"));
    let default = |project: &Project| {
        let listed = project.posse(&["model", "list", "--json"]).ok().json();
        let models = listed["models"].as_array().expect("a list").clone();
        models.into_iter().find(|model| model["default"] == true).expect("a default")["name"].clone()
    };
    assert_eq!(default(&project), "a");

    project.set("POSSE_DB", "e.db");
    project.set("POSSE_MODEL", "e");
    assert_eq!(database(&project, &[]), deep.join("e.db").to_str().expect("UTF-8"));
    assert_eq!(default(&project), "e");

    assert_eq!(database(&project, &["--db", "f.db"]), deep.join("f.db").to_str().expect("UTF-8"));
    let asked = project.posse(&["model", "test", "f"]);
    assert!(asked.err.contains("asking f "), "{}", asked.err);
    project.write("config/posse.toml", file);
    let elsewhere = ["work", "--metrics", "0.0.0.0:1"];
    assert!(project.posse(&elsewhere).expect(2).err.contains("slots is 0"));
    let slots = [&elsewhere[..], &["--slots", "1"]].concat();
    assert!(!project.posse(&slots).err.contains("slots is 0"));
}

#[test]
fn limits_are_told() {
    let project = Project::empty();
    assert!(project.posse(&["work", "--slots", "0"]).expect(2).err.contains("slots is 0"));
    assert!(project.posse(&["model", "test", "--base-url", "x"]).expect(2).err.contains("--base-url 'x'"));
    assert!(project.posse(&["--config", "no.toml", "list"]).expect(3).err.contains("no.toml cannot be read"));
}

#[test]
fn messages_name_line_key_and_known_keys() {
    let project = Project::empty();
    for (text, expected) in [
        ("\nslot = 2", "posse.toml:2: unknown key 'slot'; did you mean 'slots'? Known here: database, personas"),
        ("[models.a]\napi_key = 'sk-1234567'", "posse.toml:2: keys do not belong in this file, so 'api_key'"),
        ("[models.a]\nurl = 'x'", "posse.toml:2: unknown key 'url'. Known here: kind, base_url"),
        ("slots = 'two'", "posse.toml:1: invalid type: string \"two\", expected usize"),
        ("slots = ", "posse.toml:1: "),
        (
            "[retention]\ncompleted = 'soon'",
            "[retention] completed is 'soon'; write a time like 12h or 30d, or forever",
        ),
        ("[retention]\nfailed = '1d'", "posse.toml:2: unknown key 'failed'. Known here: completed, cancelled"),
        ("[commands]\nmemory = 1", "posse.toml:2: unknown key 'memory'. Known here: default_seconds, max"),
        ("[commands]\nprocesses = 1", "[commands] processes is 1; it must lie between 4 and 10000"),
        ("[commands]\nmax_seconds = 30\ndefault_seconds = 40", "default_seconds is 40; it must lie between 1 and 30"),
        ("synchronous = 'off'", "expected 'full' or 'normal'"),
        ("default_model = 'b'\n[models.a]", "default_model 'b' has no [models.b] table; there are: a, local"),
        ("[models.a]\nfallback = 'b'\n[models.b]\nfallback = 'a'", "goes round in a circle: a -> b -> a"),
        ("[models.a]\nfallback = 'b'", "fallback 'b' has no [models.b] table; there are: a, local"),
        ("[models.a]\nheaders = { Authorization = 'Bearer sk-1' }", "header Authorization holds a secret"),
        ("[models.a]\nbase_url = 'localhost'", "must begin with http://"),
        ("[models.a]\nkind = 'local'\ntokenizer = 'server'", "takes no tokenizer"),
        ("[models.a]\ntokenizer = ''", "tokenizer is empty; write \"server\" or the path"),
        ("[models.a]\nprice_input = -1", "price_input must be a price"),
        ("[models.a]\ntokens_per_minute = 0", "tokens_per_minute is 0, so it could never be asked"),
        ("[models.a]\nkind = 'local'\nrequests_per_minute = 1", "takes no requests_per_minute"),
        (
            "[models.a]\nreasoning = 'yes'",
            "posse.toml:2: unknown variant 'yes', expected one of 'required', 'optional'",
        ),
    ] {
        project.write("config/posse.toml", text);
        let refused = project.posse(&["db", "path"]).expect(2).err;
        assert!(refused.contains(expected), "{refused}\nlacks {expected}");
        assert!(!refused.contains("sk-"), "shows a key: {refused}");
    }
}

#[test]
fn what_a_full_file_says_holds() {
    let project = Project::begun();
    project.posse(&["db", "path"]).ok();
    let file = "default_model = 'a'\n[models.a]\nmodel = 'm'\ntool_calling = 'native'\nheaders = { X = '${Y}' }\n\
                reasoning = 'optional'\n[commands]\nmax_seconds = 30\nmemory_mb = 512\n[retention]\ncompleted = '7d'\n\
                discarded = 'forever'";
    project.write("config/posse.toml", file);
    let told = project.posse(&["tool", "show", "run_command"]).ok().out.replace("\n  ", " ");
    assert!(told.contains("may take 30 s") && told.contains("512 MB of memory"), "{told}");
    let kept = project.posse(&["db", "retention"]).ok().out;
    assert!(kept.contains("completed  7d\ncancelled  30d\ndiscarded  forever\n"), "{kept}");
}
