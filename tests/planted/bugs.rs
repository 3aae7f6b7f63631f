//! The bugs. Each is a few characters of the sources, and what somebody once wrote there, somewhere; its family is that of the public cases
//! in `tests/cases`.

use Suite::*;

/// What is run against a bug.
#[derive(Debug, Clone, Copy)]
pub enum Suite {
    Promises,
    Cases,
    Crashes,
    Faults,
    Rot,
    Schedules,
    WalUnits,
}

pub struct Bug {
    /// A torn tail, B damage, C directory, D syncs, E resources, F checkpoints, G consumers, H processes, I threads, J limits.
    pub family: char,
    pub name: &'static str,
    pub file: &'static str,
    pub sound: &'static str,
    pub planted: &'static str,
    /// Run in this order, until one fails.
    pub suites: &'static [Suite],
}

macro_rules! bugs {
    ($($family:literal $name:literal in $file:literal: $sound:literal => $planted:literal, $($suite:ident)+;)+) => {
        &[$(Bug {
            family: $family,
            name: $name,
            file: $file,
            sound: $sound,
            planted: $planted,
            suites: &[$($suite),+],
        }),+]
    };
}

pub const BUGS: &[Bug] = bugs! {
    // A: the torn tail.
    'A' "the log is cut at the first bad frame, whatever follows" in "wal/src/log/recovery/mod.rs":
        "if proof.end > stop.offset {" => "if false {", Promises;
    'A' "what follows an untrimmed tail is appended behind it" in "wal/src/log/open.rs":
        "active = if tail.closed && writable {" => "active = if writable {", Cases Promises;
    'A' "a torn tail is an error" in "wal/src/log/recovery/mod.rs":
        "                Step::Bad(damage) => break Some(damage),\n            }\n        };\n        let (pos, offset)"
        => "                Step::Bad(damage) => { proof.end = u64::MAX; break Some(damage) }\n            }\n        };\n        let (pos, offset)", Cases;
    'A' "frames behind a hole are taken for the log's" in "wal/src/segment/walk.rs":
        ".filter(|(_, header)| header.base_offset == self.expected)" => "", Cases Promises;
    'A' "evidence of a torn write is not looked for" in "wal/src/log/recovery/mod.rs":
        "            later = true;\n" => "", Cases Promises;
    'A' "zeros are a record" in "wal/src/codec/frame.rs":
        "    if bytes[4] == 0 {\n        return Err(" => "    if bytes[4] == 0 && bytes[16] != 0 {\n        return Err(", WalUnits Cases;
    'A' "what recovery found readable is called durable without a sync" in "wal/src/log/rotate.rs":
        "            let result = rewrite(self, &unsettled);" => "            let result: Result<()> = Ok(drop(unsettled));", Promises Crashes;
    'A' "what recovery found readable is synced, but not written again" in "wal/src/log/rotate.rs":
        "        write_all_at(&*file, pos, &buf[..got]).map_err(failed(\"write again\"))?;\n" => "", Promises Faults;

    // B: damage.
    'B' "the checksum of a header is not compared" in "wal/src/codec/frame.rs":
        "    if stored != computed {" => "    if false {", WalUnits;
    'B' "the digest of a payload is not compared" in "wal/src/codec/frame.rs":
        "    if computed != header.digest {" => "    if false {", WalUnits;
    'B' "a frame is not bound to its position" in "wal/src/codec/frame.rs":
        "    let computed = crc32(seed.at(pos), &bytes[4..]);" => "    let computed = crc32(seed.at(0 * pos), &bytes[4..]);", WalUnits;
    'B' "a shortened sealed segment is passed over" in "wal/src/log/recovery/headers.rs":
        "            if walk.expected != offset {" => "            if false {", Cases;
    'B' "a length is believed before it is checked against the room" in "wal/src/codec/frame.rs":
        "    if frame_len(payload_len as usize) > room {" => "    if false {", WalUnits Promises;
    'B' "an error of reading is taken for the end" in "wal/src/segment/frames.rs":
        "            got?;\n" => "            drop(got);\n", Cases;
    'B' "readers do not check what they hand out" in "wal/src/segment/frames.rs":
        "        Ok(frame::check_payload(header, payload).map(|()| payload))" => "        Ok(Ok(payload))", Cases;
    'B' "a witness behind the damage is not asked" in "wal/src/log/recovery/mod.rs":
        "            later = true;\n            proof.offer(" => "            later = true;\n            if false { proof.offer(0, || unreachable!()); }\n            Proof::new(0).offer(", Promises Rot;

    // C: which files are there.
    'C' "a missing segment is stepped over" in "wal/src/log/recovery/headers.rs":
        "            if generation != expected {" => "            if false {", Cases;
    'C' "the log's start is believed of the meta file alone" in "wal/src/log/recovery/headers.rs":
        "            } else if generation == meta.start_gen && base != meta.start_offset {" => "            } else if false {", Promises;
    'C' "the newest segment may be missing" in "wal/src/log/recovery/headers.rs":
        "        if newest < meta.newest_gen {" => "        if false {", Cases;
    'C' "an unfinished next segment stops open" in "wal/src/log/recovery/headers.rs":
        "Err(HeaderError::Blank) if generation > meta.newest_gen => {" => "Err(HeaderError::Blank) if false => {", Cases;
    'C' "offsets begin anew when everything is removed" in "wal/src/log/retention.rs":
        ".take(segments.len().saturating_sub(1))" => ".take(segments.len())", Cases Promises;
    'C' "files are removed before the start is written down" in "wal/src/log/retention.rs":
        "            self.write_meta(|meta| {\n                meta.start_gen"
        => "            for s in &segments[..plan.remove] { let _ = self.storage.remove(&s.name); }\n            self.write_meta(|meta| {\n                meta.start_gen", Crashes;
    'C' "a file that could not be removed is forgotten" in "wal/src/log/retention.rs":
        "                failed = Some(Error::io(\"remove\", self.path(name), e));\n                true"
        => "                failed = Some(Error::io(\"remove\", self.path(name), e));\n                false", Promises;
    'C' "left-overs go on the word of a meta file that may not be durable" in "wal/src/log/open.rs":
        "    let written = write_all_at(file, pos, &slot).and_then(|()| file.sync_data());" => "    let _ = (file, pos, slot);\n    let written = Ok::<(), std::io::Error>(());", Promises;
    'C' "a segment of another log is taken in" in "wal/src/log/recovery/headers.rs":
        "            let foreign = if header.log != meta.log {" => "            let foreign = if false {", Rot Promises;

    // D: syncs, their order, and acknowledgements.
    'D' "a failed sync is tried again" in "wal/src/log/sync.rs":
        "                self.stop(&mut core, Error::in_doubt(\"sync\", path, e));" => "                let _ = (path, e);", Cases;
    'D' "a failed sync counts" in "wal/src/log/sync.rs":
        "        let result = file.sync_data();" => "        let result = file.sync_data().or(Ok::<(), std::io::Error>(()));", Cases;
    'D' "nothing is synced" in "wal/src/log/sync.rs":
        "        let result = file.sync_data();" => "        let result = Ok::<(), std::io::Error>(());", Cases;
    'D' "a waiter is acknowledged by an earlier sync" in "wal/src/log/sync.rs":
        "                core.durable = target;" => "                core.durable = core.written;", Promises;
    'D' "an append is acknowledged when it is written" in "wal/src/log/sync.rs":
        "            if core.durable.offset >= appended.end {\n                return Ok(());" => "            if core.written.offset >= appended.end {\n                return Ok(());", Cases;
    'D' "a new segment's name is not made durable" in "wal/src/log/rotate.rs":
        "        storage\n            .sync_dir()\n" => "        Ok::<(), std::io::Error>(())\n", Cases;
    'D' "a new segment gets its name before its content is durable" in "wal/src/log/rotate.rs":
        "            .and_then(|()| file.sync_data().map_err(|e| failed(\"sync\", &tmp, e)))\n" => "", Crashes;
    'D' "the newest segment is not written down before it is used" in "wal/src/log/rotate.rs":
        "            meta.newest_gen = header.generation;\n" => "", Promises Cases;
    'D' "the old segment is not synced when the next is begun" in "wal/src/log/rotate.rs":
        "        core = self.write_staged(core);\n        core = self.sync_written(core);\n" => "        core = self.write_staged(core);\n        core.durable = core.written;\n", Crashes;
    'D' "a small file is replaced before it is synced" in "wal/src/storage/mod.rs":
        "    file.sync_data()?;\n    storage.rename(&tmp, name)?;" => "    storage.rename(&tmp, name)?;", Crashes;
    'D' "the name of a replaced small file is not made durable" in "wal/src/storage/mod.rs":
        "    storage.rename(&tmp, name)?;\n    storage.sync_dir()" => "    storage.rename(&tmp, name)", Crashes Cases;
    'D' "readers are shown what is not durable" in "wal/src/log/reader.rs":
        "                Visible::Durable => (core.durable, &self.durable)," => "                Visible::Durable => (core.written, &self.durable),", Cases Promises;
    'D' "the interval's sync never comes" in "wal/src/log/sync.rs":
        "                if matches!(self.options.policy, FsyncPolicy::Interval(_)) {" => "                if false {", Promises;
    'D' "closing does not tell what failed" in "wal/src/log/rotate.rs":
        "            Err(e) => {\n                drop(core);\n                Err(e)\n            }\n        };\n        let mut core = self.core.lock();\n        core.closed = true;"
        => "            Err(_) => {\n                drop(core);\n                Ok(())\n            }\n        };\n        let mut core = self.core.lock();\n        core.closed = true;", Cases;
    'D' "an idle log gets no mark" in "wal/src/log/sync.rs":
        "            core = self.write_mark(core);\n" => "", Promises;

    // E: resources.
    'E' "a full disk stops the log" in "wal/src/log/append.rs":
        "            Err(e @ Error::NoSpace { .. }) => return Err(e),\n" => "", Cases;
    'E' "a full disk stops open" in "wal/src/log/open.rs":
        "            Ok(_) | Err(Error::NoSpace { .. }) => Ok(())," => "            Ok(_) => Ok(()),", Promises;
    'E' "a sync that finds no space is tried again" in "wal/src/log/rotate.rs":
        "    file.sync_data().map_err(|e| Error::in_doubt(\"sync\", segment.path(), e))" => "    file.sync_data().map_err(failed(\"sync\"))", Promises;
    'E' "a short write is taken for a whole one" in "wal/src/storage/mod.rs":
        "            Ok(n) => {\n                pos += n as u64;\n                buf = &buf[n..];\n            }\n            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}\n            Err(e) => return Err(e),\n        }\n    }\n    Ok(())"
        => "            Ok(_) => return Ok(()),\n            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}\n            Err(e) => return Err(e),\n        }\n        pos += 0;\n        buf = &buf[0..];\n    }\n    Ok(())", Cases;
    'E' "an interrupted write is an error" in "wal/src/storage/mod.rs":
        "                buf = &buf[n..];\n            }\n            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}" => "                buf = &buf[n..];\n            }", Cases;
    'E' "a segment that could not be begun stops the log" in "wal/src/log/rotate.rs":
        "            Err(Failed::Before(e)) => Err(e)," => "            Err(Failed::Before(e)) => Err(self.stop(&mut core, e)),", Cases Promises;

    // F: checkpoint and replay.
    'F' "a checkpoint is published before the log is durable" in "kv/src/store/checkpoints.rs":
        "        self.log.sync()?;\n" => "", Promises Crashes;
    'F' "a checkpoint is published before it is durable" in "kv/src/checkpoint/write.rs":
        "    out.file.sync_data().map_err(failed(\"sync\"))?;\n" => "", Cases;
    'F' "the name of a checkpoint is not made durable before the log is cut" in "kv/src/checkpoint/write.rs":
        "            storage\n                .sync_dir()\n                .map_err(|e| Error::io(\"sync the directory of\", path(storage, &name), e))?;\n" => "", Cases;
    'F' "the log is cut to the newest checkpoint" in "kv/src/store/checkpoints.rs":
        "                self.log.remove_before(oldest)?;" => "                consumer.seek(applied)?;\n                self.log.remove_before(applied)?;", Promises Cases;
    'F' "a log that ends before a checkpoint is believed" in "kv/src/store/mod.rs":
        "        let known = load::known_durable(&*storage);" => "        let known = 0 * load::known_durable(&*storage);", Cases;
    'F' "no usable checkpoint is an empty map" in "kv/src/load.rs":
        "        None if start == 0 => State::default()," => "        None if start == 0 || true => State { applied: start, ..State::default() },", Cases;
    'F' "a checkpoint is believed without a look at its blocks" in "kv/src/checkpoint/format.rs":
        "        if digest(self.seed, payload) != self.digest {" => "        if false {", Cases;
    'F' "the replay begins one record late" in "kv/src/load.rs":
        "    let mut reader = log.reader(state.applied)?;" => "    state.applied = (state.applied + 1).min(end);\n    let mut reader = log.reader(state.applied)?;", Cases;
    'F' "conditions do not see writes on their way" in "kv/src/store/write.rs":
        "        for pending in sequencer.pending.iter().rev() {" => "        for pending in sequencer.pending.iter().rev().take(0) {", Promises;
    'F' "writes are seen before they are durable" in "kv/src/store/write.rs":
        "            Durability::Durable => p.offset() < durable," => "            Durability::Durable => p.offset() < durable.max(written),", Promises;
    'F' "an empty value is a delete" in "kv/src/state.rs":
        "                Some(value) => drop(self.map.insert(op.key(), value))," => "                Some(value) if !value.is_empty() => drop(self.map.insert(op.key(), value)),\n                Some(_) => drop(self.map.remove(op.key())),", Promises Cases;
    'F' "the map is one store's, the log another's" in "kv/src/load.rs":
        "    if header.log != log.id() {" => "    if false {", Promises;
    'F' "a store that could not be loaded again goes on" in "kv/src/store/mod.rs":
        "loaded.inspect_err(|_| self.log.abandon())?" => "loaded?", Promises;

    // G: consumers.
    'G' "a lost position is 0" in "wal/src/log/recovery/headers.rs":
        "                Err(HeaderError::Blank) => Err(\"its file is blank\".to_owned())," => "                Err(HeaderError::Blank) => continue,", Cases;
    'G' "a consumer without a file is a new one" in "wal/src/log/recovery/mod.rs":
        "        if listing.has_registry {" => "        if false {", Cases;
    'G' "a commit is not synced" in "wal/src/consumer/registry.rs":
        "        file.sync_data().map_err(failed(\"sync\"))" => "        let _ = failed(\"sync\");\n        Ok(())", Cases;
    'G' "a consumer's position is no witness" in "wal/src/log/recovery/mod.rs":
        "            proof.offer(cursor.committed, || Witness::Consumer {" => "            Proof::new(0).offer(cursor.committed, || Witness::Consumer {", Cases;
    'G' "retention does not ask consumers" in "wal/src/log/retention.rs":
        "                pin.floor < end.offset && !(pin.bounded && lags_too_far)" => "                pin.floor < end.offset && !pin.bounded && !lags_too_far", Cases;
    'G' "a forgotten consumer holds the log for ever, whatever the bound" in "wal/src/log/retention.rs":
        "                pin.floor < end.offset && !(pin.bounded && lags_too_far)" => "                pin.floor < end.offset && !(false && lags_too_far)", Cases;
    'G' "a consumer that is overrun goes on at the start without a word" in "wal/src/consumer/handle.rs":
        "                    _ if !self.told => None,\n                    Reset::Fail => None," => "                    Reset::Fail if !self.told => None,\n                    Reset::Fail => None,", Cases Promises;
    'G' "at most once is handed out before it is committed" in "wal/src/consumer/handle.rs":
        "        if self.delivery == Delivery::AtMostOnce {\n            let next" => "        if false {\n            let next", Promises;
    'G' "a commit moves back" in "wal/src/consumer/handle.rs":
        "        if !(committed..=handed).contains(&offset) {" => "        if offset > handed {", Cases;
    'G' "the log goes on the word of a position that only memory shows" in "wal/src/consumer/registry.rs":
        "            if !state.settled {" => "            if false {", Promises;

    // H: processes.
    'H' "two writers" in "wal/src/storage/fs.rs":
        "        match file.try_lock() {" => "        match Ok::<(), TryLockError>(()) {", Cases;
    'H' "reading takes the lock" in "wal/src/log/open.rs":
        "        let examined = examine_live(&storage, options.known_durable)?;\n        let meta = open_meta(&*storage, Access::Read)?;"
        => "        let _lock = acquire(&*storage, false)?;\n        let examined = examine_live(&storage, options.known_durable)?;\n        let meta = open_meta(&*storage, Access::Read)?;", Cases;
    'H' "a thread that dies leaves the others waiting" in "wal/src/log/mod.rs":
        "        if self.held {\n            let mut core" => "        if false {\n            let mut core", Cases;

    // I: threads.
    'I' "two syncs at once" in "wal/src/log/sync.rs":
        "            if core.exclusive || core.sync_busy {\n                self.durable.wait(&mut core);" => "            if core.exclusive {\n                self.durable.wait(&mut core);", Promises;
    'I' "who waits for a sync is not woken" in "wal/src/log/sync.rs":
        "        role.release(&mut core);\n        self.durable.notify_all();\n        core" => "        role.release(&mut core);\n        core", Schedules;

    // J: limits and format.
    'J' "what is too large is accepted" in "wal/src/log/append.rs":
        "        if record.len() as u64 > bytes_max {" => "        if false {", Cases;
    'J' "a newer version is taken for damage" in "wal/src/codec/mod.rs":
        "    if version > FORMAT_VERSION {" => "    if false {", Cases;
    'J' "old segments go by a wall clock that jumped" in "wal/src/log/retention.rs":
        "        let believed = if opened - newest > MONTH_MS { newest } else { opened };\n        believed.saturating_add(self.epoch.elapsed_ms(&*self.options.clock))"
        => "        let _ = (newest, MONTH_MS);\n        self.options.clock.unix_ms()", Cases Promises;
    'J' "a record that does not fit begins segments for ever" in "wal/src/log/append.rs":
        "                    if used > 0 && used + len > self.options.segment_bytes {" => "                    if used + len > self.options.segment_bytes {", Cases;
    'J' "offsets go round" in "wal/src/offset.rs":
        "    offset.checked_add(count as u64).filter(|end| *end < u64::MAX)" => "    Some(offset.wrapping_add(count as u64))", WalUnits Cases;
    'J' "the feed leaves deletes out" in "kv/src/feed.rs":
        "            value: op.value().map(<[u8]>::to_vec),\n        });" => "            value: op.value().map(<[u8]>::to_vec),\n        }).filter(|change| change.value.is_some());", Promises;
    'J' "history has no bounds" in "kv/src/load.rs":
        "    if !(start..=end).contains(&wanted) {" => "    if false {", Promises;
};
