//! The ledger of tool calls. It says the same as the journal, in a form that can be asked.

use serde::Deserialize;
use serde::de::IntoDeserializer;

use super::driver::{CallRow, Driver};
use super::fault::{misused, unusable};
use super::seal::Place;
use super::{Outcome, Tx};
use crate::clock::Millis;
use crate::job::JobId;
use crate::run::journal::{CallState, LedgerChange, LedgerRow, effect_key};
use crate::tool::EffectClass;

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
fn has_lost_its_end<D: Driver>(
    tx: &mut Tx<'_, D>,
    (job, seq): (JobId, i64),
    call_id: &str,
    (from, to, effect): (CallState, CallState, EffectClass),
) -> Outcome<bool> {
    let ended = matches!(from, CallState::Done | CallState::Failed | CallState::Unknown);
    if !ended || (to != CallState::Unknown && !effect.repeatable()) {
        return Ok(false);
    }
    for step in tx.db.journal(job, 0)?.iter().filter(|step| step.kind == "call_ended" && step.seq < seq) {
        let data = tx.keys.open(Place::entry(job.0, step.seq), &step.data)?;
        let entry: serde_json::Result<serde_json::Value> = serde_json::from_str(&data);
        if entry.is_ok_and(|entry| entry["call_id"] == call_id) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Applies what an entry at place `seq` changes. `position` is the call's place among the entry's.
pub fn apply<D: Driver>(
    tx: &mut Tx<'_, D>,
    job: JobId,
    seq: i64,
    position: i32,
    change: &LedgerChange,
    now: Millis,
) -> Outcome<()> {
    match change {
        LedgerChange::Propose { call_id, tool, effect } => {
            let (effect, state) = (effect.as_str().to_owned(), CallState::Proposed.as_str().to_owned());
            let call = CallRow { id: call_id.clone(), seq, position, tool: tool.clone(), effect, state, at: now };
            match tx.db.propose(job, &call)? {
                false => Err(misused(format!("job {job} has a call {call_id} already; nothing was saved"))),
                true => Ok(()),
            }
        }
        LedgerChange::Move { call_id, to } => {
            let Some(call) = tx.db.calls(job, Some(call_id))?.pop() else { return Ok(()) };
            let (from, effect) = (named(&call.state)?, named(&call.effect)?);
            if !is_legal(from, *to, effect) && !has_lost_its_end(tx, (job, seq), call_id, (from, *to, effect))? {
                return Err(misused(format!(
                    "call {call_id} of job {job} is {} and cannot become {}; nothing was saved",
                    from.as_str(),
                    to.as_str()
                )));
            }
            Ok(tx.db.move_call(job, call_id, to.as_str(), now)?)
        }
    }
}

/// A job's calls, in the order they were asked for, with the keys they have in this installation.
pub fn read<D: Driver>(db: &mut D, installation: &str, job: JobId) -> Outcome<Vec<LedgerRow>> {
    let call = |CallRow { id: call_id, seq, tool, effect, state, at, .. }| {
        let effect_key = effect_key(installation, job, &call_id);
        let (effect, state) = (named(&effect)?, named(&state)?);
        Ok(LedgerRow { call_id, seq: seq.unsigned_abs(), tool, effect, effect_key, state, at })
    };
    db.calls(job, None)?.into_iter().map(call).collect()
}

/// The value of a type that is stored by name.
fn named<'de, T: Deserialize<'de>>(name: &'de str) -> Outcome<T> {
    T::deserialize(name.into_deserializer()).map_err(|error: serde::de::value::Error| {
        unusable(format!("the ledger has a word that this version of posse does not know: {error}"))
    })
}
