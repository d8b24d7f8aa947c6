"""JSON Web Tokens: strict parsing, key sets from a file or URL, and the verifier that maps claims to a principal."""
