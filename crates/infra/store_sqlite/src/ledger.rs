//! The ledger of tool calls. It says the same as the journal, in a form that can be asked.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::run::journal::{CallState, LedgerChange, LedgerRow, effect_key};
use posse_core::tool::EffectClass;
use serde::Deserialize;
use serde::de::IntoDeserializer;

use super::fault::{Outcome, misused, unusable};
use super::literal::update;
use super::schema::{steps, tool_calls};
use super::writer::Transaction;
use posse_core::store::seal::{Place, Sealed};

/// Whether a call may go from one state to another.
fn is_legal(from: CallState, to: CallState, effect: EffectClass) -> bool {
    use CallState::*;
    match (from, to) {
        (Proposed, Started | Refused) | (Started, Done | Failed | Unknown) => true,
        // It was in flight when its worker ended, and runs again.
        (Started, Started) => effect.repeatable(),
        _ => false,
    }
}

/// Whether a call that has ended may move on with the entry at place `seq`, because the journal before
/// it, which is the truth, has lost its end: then it runs again if it may, and else nobody knows what
/// became of it.
fn has_lost_its_end(
    tx: &mut Transaction<'_>,
    (job, seq): (JobId, i64),
    call_id: &str,
    (from, to, effect): (CallState, CallState, EffectClass),
) -> Outcome<bool> {
    let ended = matches!(from, CallState::Done | CallState::Failed | CallState::Unknown);
    if !ended || (to != CallState::Unknown && !effect.repeatable()) {
        return Ok(false);
    }
    let ends: Vec<(i64, Sealed)> = steps::table
        .filter(steps::job_id.eq(job.0).and(steps::seq.lt(seq)).and(steps::kind.eq("call_ended")))
        .select((steps::seq, steps::data))
        .load(&mut tx.db.0)?;
    for (seq, data) in ends {
        let data = tx.keys.open(Place::entry(job.0, seq), &data)?;
        let entry: serde_json::Result<serde_json::Value> = serde_json::from_str(&data);
        if entry.is_ok_and(|entry| entry["call_id"] == call_id) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Applies what an entry at place `seq` changes. `position` is the call's place among the entry's.
pub(super) fn apply(
    tx: &mut Transaction<'_>,
    job: JobId,
    seq: i64,
    position: i32,
    change: &LedgerChange,
    now: Millis,
) -> Outcome<()> {
    match change {
        LedgerChange::Propose { call_id, tool, effect } => {
            let added = diesel::insert_into(tool_calls::table)
                .values((
                    tool_calls::job_id.eq(job.0),
                    tool_calls::call_id.eq(call_id),
                    tool_calls::seq.eq(seq),
                    tool_calls::tool.eq(tool),
                    tool_calls::effect_class.eq(effect.as_str()),
                    tool_calls::state.eq(CallState::Proposed.as_str()),
                    tool_calls::changed_at.eq(now),
                    tool_calls::position.eq(position),
                ))
                .on_conflict_do_nothing()
                .execute(&mut tx.db.0)?;
            match added {
                0 => Err(misused(format!("job {job} has a call {call_id} already; nothing was saved"))),
                _ => Ok(()),
            }
        }
        LedgerChange::Move { call_id, to } => {
            let this = tool_calls::job_id.eq(job.0).and(tool_calls::call_id.eq(call_id));
            let now_is: Option<(String, String)> = tool_calls::table
                .filter(this)
                .select((tool_calls::state, tool_calls::effect_class))
                .first(&mut tx.db.0)
                .optional()?;
            let Some((from, effect)) = now_is else { return Ok(()) };
            let (from, effect) = (named(&from)?, named(&effect)?);
            if !is_legal(from, *to, effect) && !has_lost_its_end(tx, (job, seq), call_id, (from, *to, effect))? {
                return Err(misused(format!(
                    "call {call_id} of job {job} is {} and cannot become {}; nothing was saved",
                    from.as_str(),
                    to.as_str()
                )));
            }
            let moved = (tool_calls::state.eq(to.as_str()), tool_calls::changed_at.eq(now));
            update(tool_calls::table, this, moved).execute(&mut tx.db.0)?;
            Ok(())
        }
    }
}

/// A job's calls, in the order they were asked for, with the keys they have in this installation.
pub(super) fn read(connection: &mut SqliteConnection, installation: &str, job: JobId) -> Outcome<Vec<LedgerRow>> {
    type Row = (String, i64, String, String, String, i64);
    let rows: Vec<Row> = tool_calls::table
        .filter(tool_calls::job_id.eq(job.0))
        .order((tool_calls::seq, tool_calls::position))
        .select((
            tool_calls::call_id,
            tool_calls::seq,
            tool_calls::tool,
            tool_calls::effect_class,
            tool_calls::state,
            tool_calls::changed_at,
        ))
        .load(connection)?;
    let call = |(call_id, seq, tool, effect, state, at): Row| {
        let effect_key = effect_key(installation, job, &call_id);
        let (effect, state) = (named(&effect)?, named(&state)?);
        Ok(LedgerRow { call_id, seq: seq.unsigned_abs(), tool, effect, effect_key, state, at })
    };
    rows.into_iter().map(call).collect()
}

/// The value of a type that is stored by name.
fn named<'de, T: Deserialize<'de>>(name: &'de str) -> Outcome<T> {
    T::deserialize(name.into_deserializer()).map_err(|error: serde::de::value::Error| {
        unusable(format!("the ledger has a word that this version of posse does not know: {error}"))
    })
}
