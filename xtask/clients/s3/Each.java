// Runs the tests of minio-java, each by itself, so that one that fails ends no other.
//
// usage: Each ENDPOINT

import io.minio.MinioClient;

class Each {
  interface Test {
    void run() throws Exception;
  }

  static void run(String name, Test test) {
    try {
      test.run();
    } catch (Exception | AssertionError error) {
      String why = error.toString().replaceAll("[\\\\\"\\p{Cntrl}]", " ");
      System.out.printf(
          "{\"function\": \"%s: ended\", \"status\": \"FAIL\", \"error\": \"%s\"}%n", name, why);
    }
  }

  public static void main(String[] args) throws Exception {
    String id = System.getenv("ACCESS_KEY");
    String secret = System.getenv("SECRET_KEY");
    TestArgs found = new TestArgs(args[0], id, secret, System.getenv("SERVER_REGION"));
    MinioClient client = MinioClient.builder().endpoint(args[0]).credentials(id, secret).build();
    new TestMinioClient(found, false, client).runTests();
    // Threads of the client would keep the program for a minute.
    System.exit(0);
  }
}
