//! The log: one line for each event on standard error, as text or as JSON, that nothing written by others can
//! steer or break, and that nobody's work waits for.

use std::fmt::{self, Write as _};
use std::io;

use posse_core::text::{harmless_json, rfc3339, visible_line};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::{Out, Paint, stream, text};

/// Logs from now on, panics too. POSSE_LOG or RUST_LOG decides what is logged; else warnings, and more
/// where a command goes on for long. POSSE_LOG_FORMAT=json makes each line a JSON object.
pub fn begin(long: bool, out: &Out) {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let named = variable("POSSE_LOG").or_else(|| variable("RUST_LOG"));
    // The live view of one job tells of a model's failed tries itself.
    let fallback = if long { "warn,posse=info" } else { "warn,posse_models=error" };
    // What a certificate lacks is told by the error of whoever asked, in words.
    // What goes wrong with an MCP server is told where it was called; its client's log would quote the server.
    let fallback = &format!("{fallback},rustls_platform_verifier=off,rmcp=off");
    let filter = match named.as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            out.warn(format!("POSSE_LOG or RUST_LOG is not understood ({error}); logging warnings"));
            EnvFilter::new(fallback)
        }
        None => EnvFilter::new(fallback),
    };
    let as_json = match variable("POSSE_LOG_FORMAT").as_deref() {
        None | Some("text") => false,
        Some("json") => true,
        Some(other) => {
            out.warn(format!("POSSE_LOG_FORMAT is '{other}'; it can be text or json. Logging text"));
            false
        }
    };
    let paint = out.note_paint;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .event_format(Lines { as_json, paint })
        .with_writer(|| ToStream)
        .init();
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let text =
            format!("posse: a fault in posse itself, in thread '{}': {panic}", thread.name().unwrap_or("unnamed"));
        stream::stderr().send(text::visible(&text) + "\n");
    }));
}

struct Lines {
    as_json: bool,
    paint: Paint,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for Lines {
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let at = rfc3339(crate::wire::now()).unwrap_or_default();
        let level = event.metadata().level();
        if self.as_json {
            let mut line = Map::new();
            line.insert("at".into(), at.into());
            line.insert("level".into(), level.as_str().to_ascii_lowercase().into());
            line.insert("message".into(), fields.message.into());
            line.insert("target".into(), event.metadata().target().into());
            // A field cannot take the place of these.
            for (name, value) in fields.others {
                line.entry(name).or_insert(value);
            }
            return writeln!(writer, "{}", harmless_json(&Value::Object(line).to_string()));
        }
        let (name, paint) = (format!("{:>5}", level.as_str()), self.paint);
        let name = match *level {
            Level::ERROR => paint.red(name),
            Level::WARN => paint.yellow(name),
            Level::INFO => paint.green(name),
            _ => paint.dim(name),
        };
        let mut line = format!("{} {name} {}", paint.dim(at), visible_line(&fields.message));
        for (name, value) in fields.others {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let _ = write!(line, " {}{}", paint.dim(format!("{name}=")), visible_line(&value));
        }
        writeln!(writer, "{line}")
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(String, Value)>,
}

impl Fields {
    fn take(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.others.push((name.to_owned(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}").into());
    }
}

struct ToStream;

impl io::Write for ToStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        stream::stderr().send(String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
