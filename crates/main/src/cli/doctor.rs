//! `posse doctor`: everything that can be looked at, looked at.

use std::path::Path;

use posse_app::doctor::{self, Diagnosis, Look};
use posse_app::models::Origin;
use posse_core::doctor::{Finding, Verdict, space};
use posse_core::model::Models as _;
use posse_core::persona::Severity;
use posse_infra::process::LinuxProcessProbe;
use posse_infra::sandbox::Exact;

use super::prelude::*;
use crate::embedder::Chosen;
use crate::env;
use crate::output::text::visible;
use crate::settings::Settings;
use crate::wire::Project;

pub async fn doctor(cx: &Context, full: bool) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let mut findings = project(&settings).await;
    findings.extend(database(&settings, full).await);
    let found = Diagnosis::new(findings);
    if cx.out.json {
        cx.out.document(&found)?;
    } else {
        let paint = cx.out.paint;
        for Finding { check, verdict, message, way_out } in &found.findings {
            let word = match verdict {
                Verdict::Ok => paint.green("ok     "),
                Verdict::Warning => paint.yellow("warning"),
                Verdict::Wrong => paint.red("wrong  "),
            };
            cx.out.line_at(9, format!("{word}  {check}: {}", visible(message)))?;
            if let Some(way_out) = way_out {
                cx.out.line(format!("           {}", paint.dim(visible(way_out))))?;
            }
        }
    }
    Ok(if found.verdict == Verdict::Wrong { Exit::Failed } else { Exit::Ok })
}

async fn project(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    match Project::gather(settings).await {
        Err(error) => findings.push(Finding::wrong("project", format!("{error:#}"), "mend that, then look again")),
        Ok(project) => {
            findings.push(Finding::ok("personas", format!("{} can be used", project.personas.personas.len())));
            let problems = project.personas.problems.iter().filter(|problem| problem.severity != Severity::Note);
            findings.extend(problems.map(|problem| {
                let way_out = "posse persona check tells more";
                match problem.severity {
                    Severity::Error => Finding::wrong("personas", problem.to_string(), way_out),
                    _ => Finding::warning("personas", problem.to_string(), way_out),
                }
            }));
            findings.extend(models(&project));
            findings.push(embedder(settings));
            findings.push(match wire::probe_commands(settings, &project.offer, &project.personas.personas).await {
                None => Finding::ok("commands", "no persona runs any"),
                Some(Ok(exact)) => Finding::ok("commands", format!("run in sandboxes; {}", held(exact))),
                Some(Err(why)) => Finding::wrong("commands", format!("cannot run: {why}"), wire::COMMANDS_WAY_OUT),
            });
        }
    }
    findings.extend(space_at("the workspace", &settings.workspace));
    findings.extend(settings.database.parent().and_then(|folder| space_at("the database", folder)));
    findings
}

fn held(Exact { memory, processes }: Exact) -> &'static str {
    match (memory, processes) {
        (true, true) => "control groups hold their limits on memory and processes exactly",
        (true, false) => "a control group holds their limit on memory exactly, processes are counted 40 times a second",
        (false, true) => "a control group holds their limit on processes exactly, memory is added up 40 times a second",
        (false, false) => {
            "memory and processes are added up 40 times a second, for no control group can be made here (RELIABILITY.md)"
        }
    }
}

/// Whether each model that a persona would ask can be had.
fn models(project: &Project) -> Vec<Finding> {
    let mut asked: Vec<_> = project.personas.personas.iter().map(|file| file.persona.model.clone()).collect();
    asked.sort();
    asked.dedup();
    let judge = |name: Option<String>| {
        let shown = name.clone().unwrap_or_else(|| "the default".into());
        match project.models.get(name.as_deref()) {
            Ok(_) => Finding::ok("models", format!("{shown} can be asked")),
            Err(error) => Finding::wrong("models", format!("{shown}: {}", error.message), "posse model list"),
        }
    };
    asked.into_iter().map(judge).collect()
}

/// Whether texts can be found by their meaning. Where they cannot they are found by their words, so nothing is broken.
fn embedder(settings: &Settings) -> Finding {
    let chosen = Chosen::of(settings, &env::own);
    match (chosen.build(&env::own), chosen.view(&env::own)) {
        (Ok(_), Some(view)) => Finding::ok("embedder", format!("{}, {}, can be asked", view.model, view.place)),
        (Err(error), Some(view)) if view.kind == "local" && view.origin == Origin::BuiltIn => {
            Finding::ok("embedder", format!("texts are found by their words alone: {}", error.message))
        }
        (Err(error), _) => Finding::warning("embedder", error.message, "posse model test --embedder"),
        (Ok(_), None) => Finding::ok("embedder", "none, as the settings say: texts are found by their words alone"),
    }
}

fn space_at(what: &str, folder: &Path) -> Option<Finding> {
    // Where there is no folder yet there is nothing to be full.
    let free = posse_infra::process::free_space(folder)?;
    Some(space(what, &folder.display().to_string(), free))
}

async fn database(settings: &Settings, full: bool) -> Vec<Finding> {
    let unusable = |error: &dyn std::fmt::Display| doctor::unusable(error);
    // What every other command loads too, be there a database or not.
    if let Err(error) = wire::register_extension(settings) {
        let way_out = "mend or remove that file, then look again";
        return vec![Finding::wrong("extension", format!("{error:#}"), way_out)];
    }
    let (path, file) = (settings.database.display().to_string(), wire::database(settings));
    let (finding, can_be_opened) = doctor::closed(&*file, settings.database.exists(), &path);
    if !can_be_opened {
        return vec![finding];
    }
    let mut findings = vec![finding];
    let store = match wire::open_reader(settings) {
        Ok(Some(store)) => store,
        Ok(None) => return findings,
        Err(error) => return vec![unusable(&error)],
    };
    findings.push(doctor::writing(&*file));
    let roles = match wire::sources(settings).look() {
        Ok((_, personas)) => personas.roles(),
        Err(error) => {
            findings.extend(doctor::damage(&*store, full).await.unwrap_or_else(|error| vec![unusable(&error)]));
            findings.push(unusable(&error));
            return findings;
        }
    };
    let (retention, keys) = (settings.retention.as_slice(), &settings.keys);
    let (processes, now) = (&LinuxProcessProbe, wire::now());
    let look = Look { store: &*store, processes, now, roles: &roles, retention, keys, full };
    findings.extend(doctor::open(look).await);
    findings
}
