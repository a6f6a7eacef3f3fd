// Package store keeps a session on disk: a folder with an append-only journal and the outputs that
// are too long for memory.
//
// # The journal
//
// journal.jsonl holds one entry a line, each an object with "seq" (from 1, without holes), "id",
// "parent" (the id of the entry before it; empty for the first), "time", "type", "data" and, as the
// last field, "crc": the CRC-32C of the line up to, and without, the comma before "crc", in eight
// hex digits. It can be read without this program. A last line that is incomplete, as a crash
// leaves it, is ignored by [Read]; damage anywhere else is a *CorruptError.
//
// Append writes a line in one call of write, and Sync makes what was appended durable. After a
// failed write the journal accepts nothing more, so that what is on disk is always a prefix of what
// the session believes.
package store
