//! Words on the wire: those that were released keep their meaning, those of a newer build become `Unknown`.

use protocol::agent::{CheckoutKind, CommitMode, EndCause, Phase, Role, StartStep};
use protocol::api::Reachability;
use protocol::codec::{from_bytes, to_bytes};
use protocol::compare::{CompareForm, FileStatus};
use protocol::error::ErrorCode;
use protocol::files::{FileArea, FileKind};
use protocol::merge::{MergeOutcome, MergeState};
use protocol::message::MessageState;
use protocol::notify::NoticeKind;
use protocol::report::Life;
use protocol::signals::{Children, PhaseReason};
use protocol::task::{Accept, FailureClass, Landing, TaskState, Verdict};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The words of one type: as released, in the order of its variants; new ones are added at the end of a list.
fn check<T>(all: &[T], unknown: T, as_str: impl Fn(T) -> &'static str, released: &[(T, &str)])
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug + Copy,
{
    let name = std::any::type_name::<T>();
    for (value, word) in released {
        assert_eq!(as_str(*value), *word, "{name}");
        assert_eq!(from_bytes::<T>(&to_bytes(word).unwrap()).unwrap(), *value, "{name}: {word}");
        assert_eq!(to_bytes(value).unwrap(), to_bytes(word).unwrap(), "{name}: {word}");
    }
    for value in all {
        let is_released = released.iter().any(|(known, _)| known == value);
        assert!(is_released, "{name}: {value:?} is new: add its word to the list");
    }
    for word in ["a-word-of-tomorrow", "", "unknown", "RUNNING ", "名"] {
        assert_eq!(from_bytes::<T>(&to_bytes(&word).unwrap()).unwrap(), unknown, "{name}: {word:?}");
    }
    assert!(from_bytes::<T>(&to_bytes(&7_u8).unwrap()).is_err(), "{name}: a number is no word");
}

macro_rules! words {
    ($($type:ident { $($variant:ident = $word:literal),+ $(,)? })+) => {
        $(check($type::ALL, $type::Unknown, $type::as_str, &[$(($type::$variant, $word)),+]);)+
    };
}

#[test]
fn released_words_keep_their_meaning_and_newer_ones_are_unknown() {
    words! {
        Phase {
            Creating = "CREATING", Running = "RUNNING", Blocked = "BLOCKED", Paused = "PAUSED",
            Stopped = "STOPPED", Crashed = "CRASHED", Failed = "FAILED",
        }
        EndCause {
            Exited = "exited", Signalled = "signalled", OutOfMemory = "out-of-memory", Requested = "requested",
            TimeLimit = "time-limit", Lease = "lease", StartFailed = "start-failed",
            SupervisorLost = "supervisor-lost", Rebooted = "rebooted",
        }
        StartStep {
            Host = "host", Workspace = "workspace", Checkout = "checkout", Limits = "limits", User = "user",
            Environment = "environment", Supervisor = "supervisor", ProgramMissing = "program-missing",
            ProgramDenied = "program-denied", Exec = "exec", Prepare = "prepare",
        }
        Role { Own = "own", Attempt = "attempt", Verify = "verify" }
        CommitMode { Agent = "agent", Auto = "auto" }
        CheckoutKind { Auto = "auto", Overlay = "overlay", Clone = "clone", Worktree = "worktree" }
        CompareForm { Patch = "patch", Files = "files", Mail = "mail" }
        FileStatus {
            Added = "added", Modified = "modified", Deleted = "deleted", Renamed = "renamed", Copied = "copied",
            TypeChanged = "type-changed",
        }
        Reachability { Fresh = "fresh", Late = "late", Lost = "lost" }
        MessageState {
            Queued = "queued", Delivered = "delivered", NotDelivered = "not-delivered", Cancelled = "cancelled",
        }
        NoticeKind { Failed = "failed", Blocked = "blocked", Review = "review", RunEnd = "run-end" }
        Life { Present = "present", Destroyed = "destroyed" }
        Accept { Verify = "verify", Exit = "exit", Review = "review" }
        FailureClass {
            Infrastructure = "infrastructure", Start = "start", Agent = "agent", Verify = "verify",
            Limit = "limit", Quota = "quota",
        }
        MergeState { UnderWay = "under-way", Done = "done", Refused = "refused" }
        MergeOutcome {
            Waiting = "waiting", Verifying = "verifying", Merged = "merged", Already = "already-there",
            Conflict = "conflict", Red = "red", LeftOut = "left-out", Failed = "failed",
        }
        Verdict {
            Accepted = "accepted", Rejected = "rejected", RejectedForGood = "rejected-for-good",
        }
        TaskState {
            Queued = "QUEUED", Assigned = "ASSIGNED", Running = "RUNNING", Verifying = "VERIFYING",
            Review = "REVIEW", Accepted = "ACCEPTED", Merged = "MERGED", Rejected = "REJECTED",
            Failed = "FAILED", Cancelled = "CANCELLED",
        }
        Landing { Due = "due", Made = "made", Refused = "refused" }
        FileArea { Workspace = "workspace", Outputs = "outputs" }
        FileKind { File = "file", Folder = "folder", Link = "link", Other = "other" }
        Children { None = "none" }
        PhaseReason { TurnDone = "turn-done", Frozen = "frozen", Question = "question" }
        ErrorCode {
            Invalid = "invalid", NotFound = "not-found", Denied = "denied", Conflict = "conflict",
            Exhausted = "exhausted", Unavailable = "unavailable", TimedOut = "timed-out", Failed = "failed",
        }
    }
}
