// Drives an MCP server with the official TypeScript client, and prints what came back as JSON.
//
// node mcp_client.mjs NODE-MODULES SERVER-PROGRAM ARGUMENT...; the server gets the few variables that the client passes
// on, and those that MCP_SERVER_ENV has as JSON. In the mode "auto" the client asks a second copy of the server what it
// speaks, ends that copy at once, and tells the server that stays nothing of it.

import { createRequire } from "node:module";

const [modules, command, ...args] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { Client } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const client = new Client({ name: "judge", version: "1" }, { versionNegotiation: { mode: "auto" } });
const env = JSON.parse(process.env.MCP_SERVER_ENV);
await client.connect(new StdioClientTransport({ command, args, env, stderr: "inherit" }));

const call = (name, input, options) => client.callTool({ name, arguments: input }, options);
const data = async (name, input, options) => (await call(name, input, options)).structuredContent.data;
const told = { era: client.getProtocolEra(), version: client.getNegotiatedProtocolVersion() };

const listed = await client.listTools();
told.tools = listed.tools.map((tool) => tool.name);
told.more = "nextCursor" in listed;
const sandbox = { name: "node" };
told.state = (await data("sandbox_create", sandbox)).state;
const done = await data("sandbox_shell", { ...sandbox, command: "printf 'a\\342\\200\\250\\n'; exit 3" });
told.shell = [done.exit_code, done.stdout.text];

const cancelling = new AbortController();
const long = { ...sandbox, command: "touch begun; exec sleep 9876" };
const cancelled = call("sandbox_shell", long, { signal: cancelling.signal }).then(
  () => false,
  () => true,
);
await data("sandbox_shell", { ...sandbox, command: "until [ -e begun ]; do sleep 0.05; done" });
cancelling.abort();
told.cancelled = await cancelled;
const over = { ...sandbox, command: "while pgrep -x sleep; do sleep 0.05; done", timeout: 20 };
told.gone = (await data("sandbox_shell", over)).success;

const numbers = [...Array(8).keys()];
const echoes = numbers.map((number) => data("sandbox_exec", { ...sandbox, command: "echo", args: [`${number}`] }));
told.parallel = (await Promise.all(echoes)).map((each) => Number(each.stdout.text));

const refused = await call("sandbox_exec", { name: "nobody", command: "true" });
told.refused = [refused.isError, refused.structuredContent.error.code];
const { contents } = await client.readResource({ uri: "agent-sandbox://sandboxes" });
told.read = JSON.parse(contents[0].text);
told.missing = await client.readResource({ uri: "agent-sandbox://nothing" }).catch((error) => error.code);
told.removed = (await data("sandbox_remove", sandbox)).removed;
await client.close();
console.log(JSON.stringify(told));
