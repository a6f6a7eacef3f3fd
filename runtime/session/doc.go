// Package session stores the sessions of an agent: their journals, long outputs and backups.
//
// A [Store] stores one session. [OnDisk] uses a directory of the host, [InMemory] stores nothing.
//
// # The journal
//
// journal.jsonl holds one entry a line, each an object with "seq" (from 1, without gaps), "id",
// "parent" (the id of the entry before it; empty for the first), "time", "type", "data" and, as the
// last field, "crc": the CRC-32C of the line up to, and without, the comma before "crc", in eight
// hex digits. Any JSON library can read it. [Read] ignores an incomplete last line, which a crash
// leaves; damage anywhere else is a *[CorruptError].
//
// Append writes a line in one call of write, and Sync makes the appended lines durable. After a
// failed write the journal accepts nothing more, so the file is always a prefix of the session.
//
// The constants Type… list the types of entries, each with the Go type of its data.
package session
