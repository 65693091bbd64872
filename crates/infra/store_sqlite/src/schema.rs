//! The tables, as `migrations/sqlite` makes them.

diesel::table! {
    meta (key) {
        key -> Text,
        value -> Text,
    }
}

diesel::table! {
    jobs (id) {
        id -> BigInt,
        queue -> Text,
        role -> Text,
        state -> Text,
        priority -> Integer,
        run_at -> BigInt,
        attempt -> Integer,
        max_attempts -> Integer,
        crashes -> Integer,
        lease_token -> BigInt,
        lease_until -> Nullable<BigInt>,
        leased_by -> Nullable<Text>,
        cancel_requested -> Bool,
        created_at -> BigInt,
        finalized_at -> Nullable<BigInt>,
        awaited -> Bool,
        priority_step_ms -> BigInt,
        // Made by the database: run_at + priority * priority_step_ms.
        rank -> BigInt,
        concurrency_key -> Text,
        unique_key -> Nullable<Text>,
        unique_ms -> Nullable<BigInt>,
        claimed_at -> Nullable<BigInt>,
        output -> Nullable<crate::sealed_text::SealedText>,
        reason -> Nullable<crate::sealed_text::SealedText>,
    }
}

diesel::table! {
    job_data (job_id) {
        job_id -> BigInt,
        payload -> crate::sealed_text::SealedText,
        retry -> Nullable<Text>,
        parent_id -> Nullable<BigInt>,
        root_id -> Nullable<BigInt>,
        group_name -> Nullable<Text>,
        tags -> Nullable<Text>,
        meta -> Nullable<Text>,
        max_crashes -> Nullable<Integer>,
    }
}

diesel::table! {
    deaths (job_id) {
        job_id -> BigInt,
        in_a_row -> Integer,
        entries -> BigInt,
        settled -> BigInt,
        died_at -> BigInt,
        suspect -> Bool,
        awaited_by -> Nullable<Text>,
    }
}

diesel::table! {
    job_tags (tag, job_id) {
        tag -> Text,
        job_id -> BigInt,
    }
}

diesel::table! {
    dependencies (job_id, on_job_id) {
        job_id -> BigInt,
        on_job_id -> BigInt,
        on_failed -> Text,
        open -> Bool,
    }
}

diesel::table! {
    group_waits (job_id, group_name) {
        job_id -> BigInt,
        group_name -> Text,
        on_failed -> Text,
        open -> Bool,
    }
}

diesel::table! {
    progress (job_id) {
        job_id -> BigInt,
        share -> Double,
        text -> crate::sealed_text::SealedText,
        at -> BigInt,
    }
}

diesel::table! {
    batches (name) {
        name -> Text,
        lines -> BigInt,
        digest -> Binary,
        jobs -> BigInt,
        created_at -> BigInt,
        changed_at -> BigInt,
    }
}

diesel::table! {
    batch_names (batch, name) {
        batch -> Text,
        name -> Text,
        job_id -> BigInt,
    }
}

diesel::table! {
    attempts (job_id, token) {
        job_id -> BigInt,
        token -> BigInt,
        number -> Integer,
        worker -> Text,
        started_at -> BigInt,
        ended_at -> Nullable<BigInt>,
        outcome -> Nullable<Text>,
        reason -> Nullable<crate::sealed_text::SealedText>,
    }
}

diesel::table! {
    blobs (hash) {
        hash -> Binary,
        bytes -> Binary,
    }
}

diesel::table! {
    steps (job_id, seq) {
        job_id -> BigInt,
        seq -> BigInt,
        kind -> Text,
        data -> crate::sealed_text::SealedText,
        blob_hash -> Nullable<Binary>,
        created_at -> BigInt,
    }
}

diesel::table! {
    tool_calls (job_id, call_id) {
        job_id -> BigInt,
        call_id -> Text,
        seq -> BigInt,
        tool -> Text,
        effect_class -> Text,
        state -> Text,
        changed_at -> BigInt,
        position -> Integer,
    }
}

diesel::table! {
    asks (id) {
        id -> BigInt,
        job_id -> BigInt,
        seq -> BigInt,
        position -> Integer,
        kind -> Text,
        text -> crate::sealed_text::SealedText,
        state -> Text,
        answer -> Nullable<crate::sealed_text::SealedText>,
        settled_by -> Nullable<Text>,
        created_at -> BigInt,
        expires_at -> Nullable<BigInt>,
        settled_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    memory_items (id) {
        id -> BigInt,
        scope -> Text,
        tier -> Text,
        content -> crate::sealed_text::SealedText,
        metadata -> Nullable<crate::sealed_text::SealedText>,
        tags -> Text,
        job_id -> Nullable<BigInt>,
        seq -> Nullable<BigInt>,
        step -> Nullable<BigInt>,
        author -> Text,
        tool -> Nullable<Text>,
        untrusted -> Bool,
        source -> Nullable<Text>,
        thread -> Nullable<Text>,
        place -> Nullable<BigInt>,
        fingerprint -> Nullable<Binary>,
        effect_key -> Nullable<Text>,
        version -> BigInt,
        supersedes -> Nullable<BigInt>,
        superseded_by -> Nullable<BigInt>,
        ended_at -> Nullable<BigInt>,
        reason -> Nullable<crate::sealed_text::SealedText>,
        revision -> BigInt,
        created_at -> BigInt,
        embedding -> Nullable<Binary>,
        model -> Nullable<Text>,
        dimension -> Nullable<BigInt>,
    }
}

diesel::table! {
    // A full-text index.
    memory_words (rowid) {
        rowid -> BigInt,
        content -> Text,
        around -> Text,
    }
}

diesel::table! {
    memory_space (id) {
        id -> BigInt,
        model -> Text,
        dimension -> BigInt,
        chosen_at -> BigInt,
        filled_through -> Nullable<BigInt>,
    }
}

diesel::table! {
    // An index of vectors.
    vss_memory_items (id) {
        id -> BigInt,
        scope -> Text,
        signs -> Binary,
        vector -> Binary,
    }
}

diesel::table! {
    annotations (id) {
        id -> BigInt,
        job_id -> BigInt,
        author -> Text,
        text -> crate::sealed_text::SealedText,
        tags -> Text,
        created_at -> BigInt,
    }
}

diesel::table! {
    annotation_tags (tag, annotation_id) {
        tag -> Text,
        annotation_id -> BigInt,
    }
}

diesel::table! {
    workers (id) {
        id -> Text,
        host -> Text,
        pid -> BigInt,
        pid_started -> BigInt,
        roles -> Text,
        slots -> Integer,
        started_at -> BigInt,
        heartbeat_at -> BigInt,
        lease_ms -> BigInt,
        drain_requested_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    schedules (name) {
        name -> Text,
        cron -> Text,
        zone -> Text,
        job -> crate::sealed_text::SealedText,
        missed -> Text,
        overlap -> Text,
        next_at -> BigInt,
        paused_at -> Nullable<BigInt>,
        created_at -> BigInt,
    }
}

diesel::table! {
    schedule_jobs (schedule, due_at) {
        schedule -> Text,
        due_at -> BigInt,
        job_id -> BigInt,
    }
}

diesel::table! {
    duties (name) {
        name -> Text,
        worker -> Text,
        held_until -> BigInt,
    }
}

diesel::table! {
    clock_jumps (id) {
        id -> BigInt,
        worker -> Text,
        noticed_at -> BigInt,
        by_ms -> BigInt,
    }
}

diesel::table! {
    rules (scope, name) {
        scope -> Text,
        name -> Text,
        paused_at -> Nullable<BigInt>,
        running -> Nullable<BigInt>,
        running_per_key -> Nullable<BigInt>,
        per_minute -> Nullable<BigInt>,
        full_at_us -> BigInt,
        fair -> Bool,
    }
}

// A view: the rules of `rules` and of `queues`.
diesel::table! {
    limits (scope, name) {
        scope -> Text,
        name -> Text,
        paused_at -> Nullable<BigInt>,
        running -> Nullable<BigInt>,
        running_per_key -> Nullable<BigInt>,
        per_minute -> Nullable<BigInt>,
        full_at_us -> BigInt,
        fair -> Bool,
    }
}

diesel::table! {
    queues (name) {
        name -> Text,
        paused_at -> Nullable<BigInt>,
        running -> Nullable<BigInt>,
        running_per_key -> Nullable<BigInt>,
        per_minute -> Nullable<BigInt>,
        fair -> Bool,
        full_at_us -> BigInt,
        priority -> Nullable<BigInt>,
        priority_step_ms -> Nullable<BigInt>,
        max_attempts -> Nullable<BigInt>,
        keep_completed_ms -> Nullable<BigInt>,
        keep_cancelled_ms -> Nullable<BigInt>,
        keep_discarded_ms -> Nullable<BigInt>,
        created_at -> BigInt,
    }
}

diesel::table! {
    turns (role, scope) {
        role -> Text,
        scope -> Text,
        queue -> Text,
        key -> Text,
    }
}

diesel::table! {
    rates (endpoint, model) {
        endpoint -> Text,
        model -> Text,
        requests_full_at_us -> BigInt,
        tokens_full_at_us -> BigInt,
    }
}

diesel::table! {
    breakers (endpoint) {
        endpoint -> Text,
        failures -> BigInt,
        failed_at -> BigInt,
        rests -> BigInt,
        out_until -> BigInt,
        probe_until -> BigInt,
        reason -> Nullable<crate::sealed_text::SealedText>,
    }
}

diesel::table! {
    sessions (id) {
        id -> BigInt,
        name -> Nullable<Text>,
        role -> Text,
        previous_id -> Nullable<BigInt>,
        previous_job -> Nullable<BigInt>,
        created_at -> BigInt,
        used_at -> BigInt,
        deleted_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    session_jobs (session_id, job_id) {
        session_id -> BigInt,
        job_id -> BigInt,
    }
}

diesel::table! {
    session_summaries (session_id, through_job) {
        session_id -> BigInt,
        through_job -> BigInt,
        text -> crate::sealed_text::SealedText,
        created_at -> BigInt,
    }
}

diesel::table! {
    retention (kind) {
        kind -> Text,
        keep_ms -> Nullable<BigInt>,
    }
}

// SQLite's own record of the highest id given out by each AUTOINCREMENT table.
diesel::table! {
    sqlite_sequence (name) {
        name -> Text,
        seq -> BigInt,
    }
}

diesel::joinable!(asks -> jobs (job_id));
diesel::joinable!(deaths -> jobs (job_id));
diesel::joinable!(job_data -> jobs (job_id));
diesel::joinable!(progress -> jobs (job_id));
diesel::joinable!(schedule_jobs -> jobs (job_id));
diesel::joinable!(session_jobs -> jobs (job_id));
diesel::joinable!(session_jobs -> sessions (session_id));
diesel::allow_tables_to_appear_in_same_query!(
    asks,
    deaths,
    dependencies,
    job_data,
    job_tags,
    jobs,
    memory_items,
    progress,
    schedule_jobs,
    session_jobs,
    session_summaries,
    sessions
);
diesel::allow_tables_to_appear_in_same_query!(steps, blobs);
diesel::allow_tables_to_appear_in_same_query!(annotations, annotation_tags);
