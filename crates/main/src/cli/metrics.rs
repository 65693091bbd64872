//! `posse metrics`: the database's numbers, once.

use posse_app::Code;
use posse_core::metrics::{Metrics, standing};

use super::prelude::*;

pub const HELP: &str = "\
What a worker process counts as it works (claims, failures, durations, tokens) only that process can
tell: posse work --metrics 127.0.0.1:9470 serves it at http://127.0.0.1:9470/metrics.
For the textfile collector of Prometheus' node exporter, from a timer:
  posse metrics > posse.prom.new && mv posse.prom.new /var/lib/node_exporter/posse.prom";

pub async fn metrics(cx: &Context) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let Some(store) = wire::open_reader(&settings)? else {
        let none = format!("there is no database at {} yet; the first job makes it", settings.database.display());
        return Err(fail(Code::DatabaseUnusable, none));
    };
    let metrics = Metrics { standing: Some(standing(&*store, wire::now()).await?), process: None };
    if cx.out.json {
        return cx.out.document(&metrics);
    }
    cx.out.raw(&metrics.text())?;
    Ok(Exit::Ok)
}
