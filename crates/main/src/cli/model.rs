//! `posse model`: which models there are, and whether they answer.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Instant;

use posse_app::models::{Counting, LocalFile, Measured, ModelList, ModelView, Origin};
use posse_app::{Code, json};
use posse_core::clock::Millis;
use posse_core::model::{Message, ModelRequest, Models as _, ToolCalling, Usage};
use posse_core::queue::rate::EndpointState;
use posse_core::stop::Stop;
use posse_infra::local_model;
use posse_infra::local_model::cache::models_dir;
use posse_infra::local_model::catalogue::{self, DEFAULT, KnownModel, default_model, fetchable};
use posse_infra::local_model::pull::Progress;

use super::prelude::*;
use super::work::EndpointArgs;
use super::{model_bench, model_embedder};
use crate::embedder::Chosen;
use crate::env;
use crate::models::{Catalog, Known};
use crate::output::table::{painted, plain};
use crate::output::text::{ago, bytes, cost, duration, one_line, plural, tokens, visible};
use crate::settings::{ModelKind, Overrides};

#[derive(Subcommand)]
pub enum ModelCommand {
    /// The models that can be used, and how we know of them
    List,
    /// Fetch a model file for the local model
    Pull {
        /// Which; the usual one when absent
        name: Option<String>,
    },
    /// Ask a model for one word, and say how it went
    Test {
        /// Which; the default when absent
        name: Option<String>,
        /// Have it do 14 small jobs with files, one of each kind, and say which it did right
        #[arg(long)]
        bench: bool,
        /// Ask what turns texts into vectors instead, and say how near each other it puts a few sentences
        #[arg(long, conflicts_with_all = ["name", "bench", "base_url", "api_key_env", "organization", "header"])]
        embedder: bool,
        #[command(flatten)]
        endpoint: EndpointArgs,
    },
}

pub async fn dispatch(cx: &Context, command: ModelCommand) -> Result<Exit> {
    match command {
        ModelCommand::List => list(cx).await,
        ModelCommand::Pull { name } => pull(cx, name.as_deref()),
        ModelCommand::Test { embedder: true, .. } => model_embedder::test(cx).await,
        ModelCommand::Test { name, bench, embedder: false, endpoint } => test(cx, name, bench, endpoint).await,
    }
}

async fn list(cx: &Context) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let catalog = Catalog::find(&settings, &env::own).await?;
    let failing = cx.read(async |store| store.failing_endpoints().await).await?;
    let describe = |(name, known): (&String, &Known)| describe(name, known, catalog.default_name(), &failing);
    let listed: Vec<_> = catalog.known.iter().map(describe).collect();
    let files = local_files();
    let embedder = Chosen::of(&settings, &env::own).view(&env::own);
    if cx.out.json {
        let models = json::listed(listed, false)?;
        return cx.out.document(&ModelList { models, next: None, local_files: files, embedder });
    }
    let (paint, now) = (cx.out.paint, wire::now());
    let said: Vec<_> =
        listed.iter().filter_map(|l| Some((l.name.clone(), l.failing.as_ref()?.reason.clone()?))).collect();
    let rows = listed.into_iter().map(|l| {
        let (key, origin) = (key_of(l.key_env.as_deref(), l.key_set), from(l.origin));
        let mark = if l.default { "*" } else { "" };
        let model = l.model.unwrap_or_else(|| "-".into());
        vec![
            painted(mark, move |t| paint.green(t)),
            painted(l.name, move |t| paint.cyan(t)),
            plain(one_line(&model, 48)),
            plain(origin),
            plain(key),
            plain(l.tokens.brief()),
            painted(
                health(l.failing.as_ref(), now),
                move |t| if t.trim() == "-" { paint.dim(t) } else { paint.red(t) },
            ),
            plain(one_line(&l.place, 200)),
        ]
    });
    cx.out.table(&["", "NAME", "MODEL", "FROM", "KEY", "TOKENS", "TROUBLE", "WHERE"], rows)?;
    for (name, reason) in said {
        cx.out.warn(format!("{name} failed last with: {}", one_line(&reason, 300)));
    }
    cx.out.line("")?;
    let rows = embedder.into_iter().map(|e| {
        let key = key_of(e.key_env.as_deref(), e.key_set);
        vec![plain(one_line(&e.model, 48)), plain(from(e.origin)), plain(key), plain(one_line(&e.place, 200))]
    });
    cx.out.table(&["EMBEDDER", "FROM", "KEY", "WHERE"], rows)?;
    cx.out.line("")?;
    let rows = files.into_iter().map(|f| {
        let (status, ready) = (f.status, f.status == "ready");
        let (right, takes) = Measured::brief(f.measured);
        vec![
            plain(f.name),
            painted(status, move |t| if ready { paint.green(t) } else { paint.dim(t) }),
            plain(bytes(f.bytes)),
            plain(right),
            plain(takes),
            plain(f.good_for),
        ]
    });
    cx.out.table(&["LOCAL MODEL", "FILE", "SIZE", "RIGHT", "A JOB TAKES", "GOOD FOR"], rows)?;
    let note = "* is used where a persona and a job name none · posse model test NAME asks one · posse model pull NAME \
                fetches a file";
    cx.out.hint(note);
    Ok(Exit::Ok)
}

fn key_of(variable: Option<&str>, is_set: Option<bool>) -> String {
    match variable {
        Some(variable) if is_set == Some(true) => format!("{variable} (set)"),
        Some(variable) => format!("{variable} (not set)"),
        None => "none".into(),
    }
}

fn from(origin: Origin) -> &'static str {
    match origin {
        Origin::File => "settings",
        Origin::Environment => "environment",
        Origin::Ollama => "found running",
        Origin::BuiltIn => "built in",
    }
}

fn health(failing: Option<&EndpointState>, now: Millis) -> String {
    match failing.map(|state| state.breaker) {
        None => "-".into(),
        Some(breaker) if !breaker.is_out() => format!("failed {}x", breaker.failures),
        Some(breaker) if breaker.out_until > now => format!("out, asked again {}", ago(breaker.out_until, now)),
        Some(_) => "out, asked again next".into(),
    }
}

fn local_files() -> Vec<LocalFile> {
    let Some(folder) = models_dir() else { return Vec::new() };
    let describe = |(model, status): (&KnownModel, local_model::Status)| LocalFile {
        name: model.name,
        status: match status {
            local_model::Status::Ready | local_model::Status::Unverified => "ready",
            local_model::Status::Wrong { .. } => "damaged",
            local_model::Status::Partial { .. } => "partly here",
            local_model::Status::Missing => "not here",
        },
        bytes: model.bytes,
        good_for: model.good_for,
        measured: model.measured.map(|catalogue::Measured { right, of, tokens, seconds }| Measured {
            right,
            of,
            tokens,
            seconds,
        }),
    };
    local_model::list(&folder).into_iter().map(describe).collect()
}

fn describe(name: &str, known: &Known, default: Option<&str>, failing: &[EndpointState]) -> ModelView {
    let endpoint = known.endpoint();
    // What it takes nothing for is known by the model's name behind its own.
    let of_model = endpoint.as_ref().zip(known.table.model.as_ref()).map(|(at, model)| format!("{at} {model}"));
    let names = [endpoint, of_model];
    let of_this = |state: &&EndpointState| names.iter().any(|name| name.as_ref() == Some(&state.endpoint));
    let failing = failing.iter().filter(of_this).max_by_key(|state| state.breaker.out_until).cloned();
    let key_env = known.key_env(&env::own);
    let key_set = key_env.as_deref().map(|variable| env::own(variable).is_some_and(|v| !v.is_empty()));
    let kind = if known.table.kind == ModelKind::Local { "local" } else { "endpoint" };
    let usual = || (kind == "local").then(|| DEFAULT.to_owned());
    let (model, origin, place) = (known.table.model.clone().or_else(usual), known.origin, known.place());
    let (name, default, tokens) = (name.to_owned(), default == Some(name), known.counting());
    ModelView { name, default, kind, place, model, origin, key_env, key_set, tokens, failing }
}

fn pull(cx: &Context, name: Option<&str>) -> Result<Exit> {
    let model = match name {
        None => default_model(),
        Some(name) => fetchable().find(|model| model.name == name).ok_or_else(|| {
            let names = fetchable().map(|m| m.name).collect::<Vec<_>>().join(", ");
            usage(format!("there is no model '{name}' to fetch; there are {names}"))
        })?,
    };
    let folder = models_dir().ok_or_else(|| usage("there is no place for model files; set HOME or XDG_CACHE_HOME"))?;
    crate::output::before_change()?;
    let status = |text: &str| {
        if std::io::stderr().is_terminal() {
            cx.out.moving_line(&visible(text));
        }
    };
    let path = local_model::pull::pull(model, &folder, &mut |progress| match progress {
        Progress::Fetching { .. } | Progress::Unpacking { .. } | Progress::Verifying { .. } => {
            status(&progress.to_string());
        }
        lasting => {
            status("");
            cx.out.note(lasting.to_string());
        }
    })
    .map_err(|error| fail(Code::Failed, error.to_string()))?;
    status("");
    if cx.out.json {
        cx.out.document(&json!({"name": model.name, "path": path, "bytes": model.bytes, "sha256": model.sha256}))?;
    }
    Ok(Exit::Ok)
}

/// How a model's tokens are counted, and whether that works, for people.
fn how_counted(counting: &Counting, counted: Option<u64>, usage: &Usage) -> String {
    let by = match counting {
        Counting::Estimate => return "estimated; what its replies say corrects that".into(),
        Counting::Server => "its server".to_owned(),
        Counting::File { path } => path.display().to_string(),
    };
    match counted {
        Some(counted) => {
            let read = usage.input;
            format!("counted by {by}: {counted} in the question's text, {read} read with what stands around it")
        }
        None => format!("estimated, as {by} did not count them"),
    }
}

async fn test(cx: &Context, name: Option<String>, bench: bool, endpoint: EndpointArgs) -> Result<Exit> {
    let settings = cx.settings(Overrides { model: name, endpoint: endpoint.checked()?, ..Overrides::default() })?;
    let free = wire::free_models(&settings);
    let catalog = Catalog::find(&settings, &env::own).await?;
    // Asked even if it is known to be out; should it answer, the fleet is told.
    catalog.insist();
    if settings.database.is_file() {
        catalog.share(wire::open_store(&settings)?);
    }
    let model = catalog.get(None)?;
    let name = catalog.default_name().unwrap_or_default().to_owned();
    if bench {
        return model_bench::bench(cx, &settings, Arc::new(catalog), name).await;
    }
    cx.out.hint(format!("asking {name} …"));
    let began = Instant::now();
    let profile = model.profile().await?;
    let profiled = began.elapsed();
    let text = "Reply with the one word: ready";
    let counting = catalog.known.get(&name).map_or(Counting::Estimate, Known::counting);
    let counted = match model.tokenizer() {
        Some(tokenizer) => tokenizer.count(&[text]).await.map(|counted| counted.iter().sum::<u64>()),
        None => None,
    };
    let request = ModelRequest {
        messages: vec![Message::User { text: text.to_owned() }].into(),
        max_tokens: Some(256),
        ..ModelRequest::default()
    };
    let asked = Instant::now();
    let reply = model.complete(&request, &|_| (), &Stop::never()).await?;
    let took = asked.elapsed();
    let said =
        if reply.text.trim().is_empty() { reply.reasoning.map_or_else(String::new, |r| r.text) } else { reply.text };
    if cx.out.json {
        let Usage { input, output, .. } = reply.usage;
        return cx.out.document(&json!({
            "name": name, "model": reply.model, "tool_calling": profile.tool_calling,
            "context_window": profile.context_window, "reply": said, "input_tokens": input,
            "output_tokens": output, "tokens": counting, "counted_tokens": counted, "ms": took.as_millis() as u64, "cost_microusd": reply.cost_microusd,
        }));
    }
    let paint = cx.out.paint;
    let calling = match profile.tool_calling {
        ToolCalling::Native => "native",
        ToolCalling::Structured => "structured",
    };
    let window = profile.context_window.map(|n| format!(", window {}", plural(n.into(), "token"))).unwrap_or_default();
    cx.out.line(format!("{}  {name}: {} answers", paint.green("✓"), one_line(&reply.model, 60)))?;
    cx.out.line(format!("   it said       {}", one_line(&said, cx.out.width.saturating_sub(20))))?;
    cx.out.line(format!("   tool calls    {calling}{window}"))?;
    cx.out.line(format!("   tokens        {}", how_counted(&counting, counted, &reply.usage)))?;
    let found_out = if profiled.as_millis() > 50 {
        format!(" (and {} to find out how to ask)", duration(profiled.as_millis() as i64))
    } else {
        String::new()
    };
    cx.out.line(format!("   took          {}{found_out}", duration(took.as_millis() as i64)))?;
    cx.out.line(format!("   used          {}, {}", tokens(&reply.usage), cost(reply.cost_microusd, free(&name))))?;
    Ok(Exit::Ok)
}
