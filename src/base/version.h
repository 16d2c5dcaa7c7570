/* The version: what --version prints, ranks compare and CHANGELOG.md begins with. "-dev": on the way to it. */
#ifndef DN_BASE_VERSION_H
#define DN_BASE_VERSION_H

#define DN_VERSION "0.2.0-dev"

#endif
