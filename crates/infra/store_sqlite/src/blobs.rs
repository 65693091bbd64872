//! Contents that are stored once, under their SHA-256.

use diesel::prelude::*;
use sha2::{Digest, Sha256};

use super::schema::blobs;
use super::writer::Transaction;
use posse_core::store::seal::Place;

/// Content and its hash.
#[derive(Debug)]
pub(super) struct Blob {
    /// Its SHA-256.
    pub hash: Vec<u8>,
    /// The content.
    pub bytes: Vec<u8>,
}

impl Blob {
    /// Hashes `bytes`.
    pub fn new(bytes: Vec<u8>) -> Blob {
        Blob { hash: Sha256::digest(&bytes).to_vec(), bytes }
    }
}

/// Stores the blob unless it is there.
pub(super) fn keep(tx: &mut Transaction<'_>, blob: &Blob) -> QueryResult<()> {
    diesel::insert_into(blobs::table)
        .values((
            blobs::hash.eq(&blob.hash),
            blobs::bytes.eq(&*tx.keys.seal_bytes(Place::blob(&blob.hash), &blob.bytes)),
        ))
        .on_conflict_do_nothing()
        .execute(&mut tx.db.0)
        .map(drop)
}
