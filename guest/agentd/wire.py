"""The agent protocol's names and limits: written here once, read by both ends."""

from __future__ import annotations

AGENT_PORT = 8080
HOOK_PORT = 9000

HEALTH_PATH = "/healthz"
EXEC_PATH = "/v1/exec"
FS_READ_PATH = "/v1/fs/read"
FS_WRITE_PATH = "/v1/fs/write"
PROCESSES_PATH = "/v1/processes"
FILES_PATH = "/v1/files"
TREE_PATH = "/v1/tree"
FS_PREFIX = "/v1/fs/"
STATS_PATH = "/v1/stats"
HOOK_PREFIX = "/aws/lambda-microvms/runtime/v1/"
HOOKS = ("ready", "validate", "run", "resume", "suspend", "terminate")

ENCODING_BASE64 = "base64"
ENCODING_TEXT = "utf-8"

# The caller's own id of a command. An agent that has the feature runs a command once, however often it is asked to.
EXEC_ID_HEADER = "vmnest-exec-id"
FEATURE_EXEC_ID = "exec_id"

# The other extensions, each by the name under which it is announced once it is there.
FEATURE_PROCESSES = "processes"
FEATURE_PTY = "pty"
FEATURE_FILES = "files"
FEATURE_TREE = "tree"
FEATURE_FS = "fs"
FEATURE_STATS = "stats"
FEATURE_RELAY = "relay"

# What this agent has beyond the base contract, announced in /healthz.
FEATURES: tuple[str, ...] = (
    *(FEATURE_EXEC_ID, FEATURE_PROCESSES, FEATURE_PTY),
    *(FEATURE_FILES, FEATURE_TREE, FEATURE_FS, FEATURE_STATS, FEATURE_RELAY),
)

# Error codes: member "code" beside "detail" in an error's body.
CWD_NOT_FOUND = "cwd_not_found"
COMMAND_NOT_FOUND = "command_not_found"
NOT_EXECUTABLE = "not_executable"
ARGUMENT_TOO_LONG = "argument_too_long"
BAD_ARGUMENT = "bad_argument"
TIMED_OUT = "timed_out"
FILE_NOT_FOUND = "file_not_found"
NOT_A_FILE = "not_a_file"
FILE_ERROR = "file_error"
BAD_REQUEST = "bad_request"
NO_SUCH_ROUTE = "no_such_route"
METHOD_NOT_ALLOWED = "method_not_allowed"
TOO_LARGE = "too_large"
OVERLOADED = "overloaded"
SUSPENDING = "suspending"  # nothing was begun: ask again after the resume
ALREADY_STARTED = "already_started"  # a command of this id runs, or ran: its outcome is not told twice
INTERNAL = "internal"
NO_SUCH_PROCESS = "no_such_process"
NO_SUCH_USER = "no_such_user"
NO_STDIN = "no_stdin"  # the process was started without a standard input
NO_PTY = "no_pty"  # it has no terminal
STDIN_GAP = "stdin_gap"  # bytes of standard input before this offset never arrived
FILE_EXISTS = "file_exists"
NOT_A_DIRECTORY = "not_a_directory"
DIRECTORY_NOT_EMPTY = "directory_not_empty"
NO_SPACE = "no_space"
PERMISSION_DENIED = "permission_denied"
CHECKSUM_MISMATCH = "checksum_mismatch"
FILE_CHANGED = "file_changed"  # it is not the file any more of which a part was asked for
UNSAFE_PATH = "unsafe_path"  # a member of an archive would end up outside of its folder

DEFAULT_WORKDIR = "/work"
MAX_HEAD_BYTES = 98304
MAX_JSON_BODY_BYTES = 64 * 1024 * 1024
MEMORY_OUTPUT_BYTES = 1024 * 1024  # output kept in memory per stream; beyond it goes to an unlinked file
# Output kept of one stream. A command that never stops writing must not fill the disk: that ends a local MicroVM.
MAX_OUTPUT_BYTES = 1024 * 1024 * 1024
MAX_HOOK_BODY_BYTES = 256 * 1024
TERM_GRACE_SECONDS = 0.5  # between TERM and KILL of a command's group; an answer comes within timeout + 1 s
SUSPEND_NOTICE_SECONDS = 5.0  # from the suspend hook's answer on no command begins, unless no suspension follows
MAX_REMEMBERED_EXECS = 4096
MAX_EXEC_ID_CHARS = 64
FRAMES_TYPE = "application/vnd.vmnest.frames"
LINES_TYPE = "application/x-ndjson"
OCTETS_TYPE = "application/octet-stream"
TAR_TYPE = "application/x-tar"
RETAIN_BLOCK = "block"  # a writer waits for its reader
RETAIN_DROP = "drop"  # a writer never waits; what is too much in the middle is dropped
PROCESS_RUNNING = "running"
PROCESS_ENDED = "ended"
STDIN_NONE = "none"
STDIN_PIPE = "pipe"
MAX_WAIT_SECONDS = 25.0  # of one poll: nothing on the way cuts a stream that is quiet for so long
MAX_STREAM_BYTES = 8 * 1024 * 1024  # of one answer of output; the next request's offset confirms what has arrived
MAX_STDIN_BYTES = 1024 * 1024  # of one request
READER_GRACE_SECONDS = 60.0  # a writer waits so long for a reader that is gone
DEFAULT_RETAINED_BYTES = 64 * 1024 * 1024  # output kept of one process
MAX_ENDED_PROCESSES = 256  # that can still be asked for
MODE_HEADER = "vmnest-mode"  # permission bits in octal
SHA256_HEADER = "vmnest-sha256"
# A request with this header is passed on to that port of the sandbox's own loopback.
RELAY_PORT_HEADER = "vmnest-relay-port"
# On each answer to such a request: the server's own answer, or why there is none.
RELAY_HEADER = "vmnest-relay"
RELAY_RELAYED = "relayed"
RELAY_NOT_LISTENING = "not_listening"
RELAY_REFUSED = "port_refused"
RELAY_BROKEN = "broken"  # the server ended the connection without a whole head
RELAY_FULL = "full"
DRAIN_SECONDS = 0.25  # reading on after the command itself ended, while a child holds its output open
CONNECTION_IDLE_SECONDS = 120.0
