/* A worker that does nothing: what is measured is the launcher. */
int main(void) {
    return 0;
}
