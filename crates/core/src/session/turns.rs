//! An exchange as what is remembered of it once a conversation shows it no more: its turns, in their order.

use super::Exchange;
use crate::clock::Millis;
use crate::id::SessionId;
use crate::job::JobId;
use crate::memory::{CONVERSATION, NewMemory, Origin, PERSON, Spot};

/// What the name of a session's conversation begins with.
pub const THREAD: &str = "session ";

/// Places of an exchange: what the person said, then each question and its answer, and last what the agent said.
const PLACES: i64 = 4096;

/// The conversation that the turns of a session are a part of.
pub fn thread(session: SessionId) -> String {
    format!("{THREAD}{session}")
}

/// The first place of an exchange, and the last one.
pub fn places(job: JobId) -> (i64, i64) {
    let first = job.0.saturating_mul(PLACES);
    (first, first.saturating_add(PLACES - 1))
}

/// The turns of an exchange; of its questions no more than the first 2,046 have a place.
pub fn turns(session: SessionId, role: &str, exchange: &Exchange) -> Vec<NewMemory> {
    let (first, last) = places(exchange.job);
    let turn = |place: i64, author: &str, text: &str, at: Millis| NewMemory {
        scope: role.to_owned(),
        text: text.to_owned(),
        origin: Origin {
            author: author.to_owned(),
            job: Some(exchange.job),
            untrusted: exchange.untrusted && author != PERSON,
            source: Some(CONVERSATION.into()),
            ..Origin::default()
        },
        spot: Some(Spot { thread: thread(session), place }),
        at: Some(at),
        ..NewMemory::default()
    };
    let mut turns = vec![turn(first, PERSON, &exchange.goal, exchange.said_at)];
    for (place, asked) in (first + 1..last - 2).step_by(2).zip(&exchange.asked) {
        turns.push(turn(place, role, &asked.question, exchange.said_at));
        turns.extend(asked.answer.as_deref().map(|answer| turn(place + 1, PERSON, answer, exchange.said_at)));
    }
    turns.push(turn(last, role, &exchange.reply(), exchange.ended_at.unwrap_or(exchange.said_at)));
    turns
}
