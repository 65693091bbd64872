//! Numbers in Prometheus' text format, version 0.0.4.
//!
//! Written here rather than by a library: the ones at hand print OpenMetrics, which the textfile collector
//! of the node exporter reads as untyped, and want the numbers kept in types of theirs.

use std::fmt::{Display, Write as _};

use super::{Metrics, ModelCounts, Observed, ProcessCounts, RoleCounts, Standing};
use crate::clock::Millis;
use crate::text::visible;

impl Metrics {
    /// What an HTTP response with [`Metrics::text`] says it is.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// All numbers in Prometheus' text format, base units throughout.
    pub fn text(&self) -> String {
        let mut page = Page::default();
        let up = u64::from(self.standing.is_some());
        page.gauge("posse_database_up", "Whether the database could be read for these numbers.", [(vec![], up)]);
        if let Some(standing) = &self.standing {
            page.standing(standing);
        }
        if let Some(process) = &self.process {
            page.work(process);
            page.models(&process.models);
        }
        page.text
    }
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Text under way.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn standing(&mut self, standing: &Standing) {
        let jobs = standing.jobs.iter().map(|jobs| {
            (vec![("role", jobs.role.as_str()), ("queue", &jobs.queue), ("state", jobs.state.as_str())], jobs.jobs)
        });
        self.gauge("posse_jobs", "Jobs that have not ended.", jobs);
        let due = || standing.due.iter().map(|due| (vec![("role", due.role.as_str())], due));
        self.gauge("posse_jobs_due", "Jobs that are due and not at work.", due().map(|(l, due)| (l, due.jobs)));
        let age = |at: Millis| seconds((standing.at - at).max(0).unsigned_abs());
        let ages = due().map(|(labels, due)| (labels, age(due.oldest_due_at)));
        self.gauge("posse_oldest_due_job_age_seconds", "For how long the oldest due job has been due.", ages);
        self.counter(
            "posse_jobs_enqueued_total",
            "Jobs enqueued since the database was made.",
            [(vec![], standing.enqueued)],
        );
        self.gauge("posse_leases", "Jobs in workers' hands.", [(vec![], standing.leases())]);
        self.gauge("posse_workers", "Worker processes on the list.", [(vec![], standing.workers)]);
        self.gauge(
            "posse_worker_slots",
            "Jobs that all workers can have in their hands at once.",
            [(vec![], standing.slots)],
        );
        self.gauge("posse_questions_open", "Questions that wait for a person.", [(vec![], standing.open_questions)]);
        let failing =
            || standing.failing_endpoints.iter().map(|one| (vec![("endpoint", one.endpoint.as_str())], one.breaker));
        let out = failing().map(|(labels, breaker)| (labels, u64::from(breaker.out_until > standing.at)));
        self.gauge("posse_endpoint_out", "Whether an endpoint that failed last is left alone for a while.", out);
        let failures = failing().map(|(labels, breaker)| (labels, u64::from(breaker.failures)));
        self.gauge("posse_endpoint_failures", "Failures of an endpoint since it last answered.", failures);
        let storage = &standing.storage;
        self.gauge("posse_database_size_bytes", "The database file.", [(vec![], storage.bytes)]);
        self.gauge("posse_database_free_bytes", "Free space inside the database file.", [(vec![], storage.free_bytes)]);
        self.gauge("posse_database_log_bytes", "The write-ahead log beside it.", [(vec![], storage.log_bytes)]);
    }

    fn work(&mut self, process: &ProcessCounts) {
        let roles = || process.roles.iter().map(|role| (vec![("role", role.role.as_str())], role));
        self.counter("posse_claims_total", "Jobs claimed.", roles().map(|(labels, role)| (labels, role.claims)));
        let of_role = |role: &'_ RoleCounts| -> Vec<(String, &'static str, &'static str, u64)> {
            role.ends.iter().map(|(event, state, n)| (role.role.clone(), *event, state.as_str(), *n)).collect()
        };
        let ends: Vec<_> = process.roles.iter().flat_map(of_role).collect();
        let ends = ends.iter().map(|(role, outcome, state, attempts)| {
            (vec![("role", role.as_str()), ("outcome", outcome), ("state", state)], *attempts)
        });
        self.counter("posse_attempts_total", "Attempts that ended: how, and the state that left the job in.", ends);
        let lost = roles().map(|(labels, role)| (labels, role.lost));
        self.counter("posse_leases_lost_total", "Attempts whose lease was lost before their end was stored.", lost);
        let waited = roles().map(|(labels, role)| (labels, &role.waited));
        self.histogram("posse_pickup_delay_seconds", "How long claimed jobs had been due.", waited);
        let worked = roles().map(|(labels, role)| (labels, &role.worked));
        self.histogram("posse_attempt_duration_seconds", "How long attempts took.", worked);
        self.counter("posse_rescues_total", "Jobs taken back from vanished workers.", [(vec![], process.rescued)]);
        let written = process.written;
        self.counter("posse_commits_total", "Transactions committed by this process.", [(vec![], written.commits)]);
        self.counter("posse_commands_total", "Commands in those transactions.", [(vec![], written.commands)]);
    }

    fn models(&mut self, models: &[ModelCounts]) {
        fn labels(of: &ModelCounts) -> Labels<'_> {
            vec![("endpoint", of.endpoint.as_str()), ("model", of.model.as_str())]
        }
        fn and<'a>(of: &'a ModelCounts, name: &'static str, value: &'a str) -> Labels<'a> {
            let mut all = labels(of);
            all.push((name, value));
            all
        }
        let requests = models.iter().flat_map(|of| {
            let errors = of.errors.iter().map(move |(kind, count)| (and(of, "outcome", kind), *count));
            [(and(of, "outcome", "answered"), of.answered)].into_iter().chain(errors)
        });
        self.counter("posse_model_requests_total", "Requests to models: answered, or how they failed.", requests);
        let tries = models.iter().map(|of| (labels(of), of.failed_tries));
        self.counter("posse_model_failed_tries_total", "Tries of requests that came to nothing.", tries);
        let tokens = models.iter().flat_map(|of| {
            let kinds = [("input", of.input_tokens), ("input_cached", of.cached_tokens), ("output", of.output_tokens)];
            kinds.map(|(kind, tokens)| (and(of, "kind", kind), tokens))
        });
        self.counter("posse_model_tokens_total", "Tokens; input_cached is a part of input.", tokens);
        let cost = models.iter().map(|of| (labels(of), decimal(of.cost_microusd, 6)));
        self.counter("posse_model_cost_dollars_total", "What replies cost, where prices are configured.", cost);
        let took = models.iter().map(|of| (labels(of), &of.took));
        self.histogram("posse_model_request_duration_seconds", "How long requests took, with all their tries.", took);
    }

    fn gauge<'a, V: Display>(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = (Labels<'a>, V)>) {
        self.family(name, "gauge", help, rows);
    }

    fn counter<'a, V: Display>(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = (Labels<'a>, V)>) {
        self.family(name, "counter", help, rows);
    }

    /// Rows of one name, with what it means; nothing at all where there are no rows.
    fn family<'a, V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<'a>, V)>,
    ) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_some() {
            self.head(name, kind, help);
        }
        rows.for_each(|(labels, value)| self.row(name, &labels, value));
    }

    fn histogram<'a>(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = (Labels<'a>, &'a Observed)>) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_some() {
            self.head(name, "histogram", help);
        }
        for (labels, observed) in rows {
            let bounds = observed.up_to_ms.iter().map(|(ms, count)| (seconds(*ms), *count));
            for (bound, count) in bounds.chain([("+Inf".into(), observed.count)]) {
                let mut with_bound = labels.clone();
                with_bound.push(("le", &bound));
                self.row(&format!("{name}_bucket"), &with_bound, count);
            }
            self.row(&format!("{name}_sum"), &labels, seconds(observed.sum_ms));
            self.row(&format!("{name}_count"), &labels, observed.count);
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn row(&mut self, name: &str, labels: &[(&'static str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"", if i == 0 { '{' } else { ',' });
            // Whoever prints the page on a terminal is not steered by a name.
            visible(value).chars().for_each(|c| match c {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                c => self.text.push(c),
            });
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn seconds(ms: u64) -> String {
    decimal(ms, 3)
}

/// A whole number of small parts as a decimal, exactly.
fn decimal(parts: u64, places: u32) -> String {
    let one = 10_u64.pow(places);
    let whole = format!("{}.{:0width$}", parts / one, parts % one, width = places as usize);
    whole.trim_end_matches('0').trim_end_matches('.').to_owned()
}
