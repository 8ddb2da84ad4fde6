export const greeting = "hello from the sandbox";
