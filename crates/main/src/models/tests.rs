use super::*;
use crate::settings::file::parse;
use std::ffi::OsString;
use std::path::Path;

/// Nobody listens on port 1, so no Ollama is found.
async fn find(file: &str, env: &[(&str, &str)], change: impl FnOnce(&mut Settings)) -> Result<Catalog> {
    let lookup = |name: &str| {
        let all = [("OLLAMA_HOST", "127.0.0.1:1")];
        env.iter().chain(&all).find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v))
    };
    let mut settings = Settings::resolve(Path::new("/"), &|_| None, &Default::default())?;
    let file = parse(Path::new("posse.toml"), file)?;
    (settings.models, settings.default_model) = (file.models, file.default_model);
    change(&mut settings);
    Catalog::find(&settings, &lookup).await
}

#[tokio::test]
async fn the_default_is_found_in_order() {
    let default = async |file, env: &[_]| find(file, env, |_| ()).await.expect("found").default.unwrap_or_default();
    assert_eq!(default("", &[]).await, "local");
    assert_eq!(default("", &[("OPENAI_API_KEY", "k")]).await, "openai");
    assert_eq!(default("[models.a]\nmodel='m'", &[("OPENAI_API_KEY", "k")]).await, "a");
    assert_eq!(default("default_model='local'\n[models.b]", &[]).await, "local");
    assert_eq!(default("default_model='b'\n[models.a]\n[models.b]", &[]).await, "b");
    assert_eq!(default("[models.a]\n[models.b]", &[]).await, "");
    let unclear = find("[models.a]\n[models.b]", &[], |_| ()).await.expect("found");
    assert!(unclear.get(None).err().expect("unclear").message.contains("a, b, local"));
}

#[tokio::test]
async fn a_flag_names_a_model_at_what_was_found() {
    let catalog =
        find("", &[("OPENAI_API_KEY", "k")], |s| s.default_model = Some("gpt-x".into())).await.expect("found");
    assert_eq!(catalog.known["gpt-x"].table.model.as_deref(), Some("gpt-x"));
    assert_eq!(catalog.default_name(), Some("gpt-x"));
    let unknown = find("[models.a]\nmodel='m'", &[], |s| s.default_model = Some("b".into())).await;
    assert!(unknown.err().expect("unknown").to_string().contains("there are a, local"));
    let nobody = find("", &[], |s| s.endpoint.base_url = Some("http://127.0.0.1:1/v1".into())).await;
    assert!(nobody.err().expect("which model").to_string().contains("set OPENAI_MODEL or --model"));
}

#[tokio::test]
async fn the_local_model_may_be_a_fallback_without_a_table() {
    let file = "[models.a]\nmodel='m'\nbase_url='http://127.0.0.1:1/v1'\nfallback='local'";
    let catalog = find(file, &[], |_| ()).await.expect("found");
    // Whether its file has been fetched is this machine's business.
    if let Err(error) = catalog.get(Some("a")) {
        assert!(error.message.contains("fetch it with posse model pull"), "{error:?}");
    }
}

#[test]
fn keys_go_where_they_belong() {
    let env = |name: &str| (name == "OPENAI_API_KEY" || name == "MINE").then(|| OsString::from("k"));
    let key = |table: FileModel| Known { table, origin: Origin::File }.key_env(&env);
    let at = |url: &str| FileModel { base_url: Some(url.into()), ..FileModel::default() };
    assert_eq!(key(FileModel::default()).as_deref(), Some("OPENAI_API_KEY"));
    assert_eq!(key(at("https://api.openai.com/v1")).as_deref(), Some("OPENAI_API_KEY"));
    assert_eq!(key(at("https://api.openai.com.example/v1")), None);
    assert_eq!(key(at("http://127.0.0.1:8080/v1")), None);
    let named = FileModel { api_key_env: Some("MINE".into()), ..at("http://127.0.0.1:8080/v1") };
    assert_eq!(key(named).as_deref(), Some("MINE"));
    assert_eq!(expand("m", "Bearer ${MINE}!", &env).expect("set"), "Bearer k!");
    assert!(expand("m", "${GONE}", &env).expect_err("not set").message.contains("GONE, which is not set"));
}

#[tokio::test]
async fn the_usual_variables_of_an_organisation_just_work() {
    let env = [("OPENAI_API_KEY", "k"), ("OPENAI_ORG_ID", "org-1"), ("OPENAI_PROJECT_ID", "proj-2")];
    let catalog = find("", &env, |_| ()).await.expect("found");
    let table = &catalog.known["openai"].table;
    assert_eq!((table.organization.as_deref(), table.project.as_deref()), (Some("org-1"), Some("proj-2")));
}

#[tokio::test]
async fn what_flags_say_of_an_endpoint_holds_for_the_default_model() {
    let headers = |value: &str| [("X-Team".to_owned(), value.to_owned())].into();
    let said = Endpoint { organization: Some("org-9".into()), headers: headers("blue"), ..Endpoint::default() };
    let file = "default_model = 'a'\n[models.a]\nmodel = 'm'\norganization = 'org-1'\nheaders = { X-More = '1' }";
    let catalog = find(file, &[], |s| s.endpoint = said.clone()).await.expect("found");
    let table = &catalog.known["a"].table;
    assert_eq!(table.organization.as_deref(), Some("org-9"));
    assert_eq!(table.headers.keys().collect::<Vec<_>>(), ["X-More", "X-Team"]);
    let local = find("", &[], |s| s.endpoint = said).await;
    assert!(local.err().expect("no endpoint").to_string().contains("add --base-url"));
    let secret = [("Authorization".to_owned(), "Bearer sk-1".to_owned())].into();
    let open = Endpoint { headers: secret, ..Endpoint::default() };
    let refused = find(file, &[], |s| s.endpoint = open).await;
    assert!(refused.err().expect("a secret").to_string().contains("holds a secret"));
}
